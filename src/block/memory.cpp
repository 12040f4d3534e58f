#include "block/memory.hpp"

#include <new>

#include "base/sizes.hpp"

namespace mdlm {
namespace {

void *own_alloc(void *, size_t bytes, size_t alignment) { return ::operator new(bytes, std::align_val_t(alignment), std::nothrow); }
void own_free(void *, void *at, size_t, size_t alignment) { ::operator delete(at, std::align_val_t(alignment)); }

}  // namespace

Memory::~Memory() {
    if (at_ != nullptr) from_->give(at_, static_cast<size_t>(bytes_), granule);
}

Allocator::Allocator(const mdlm_allocator *table) : table_{own_alloc, own_free, nullptr} {
    if (table != nullptr) table_ = *table;
}

void *Allocator::take(size_t bytes, size_t alignment) {
    ++calls_;
    return table_.alloc(table_.payload, bytes, alignment);
}

void Allocator::give(void *at, size_t bytes, size_t alignment) { table_.free(table_.payload, at, bytes, alignment); }

Memory Allocator::allocate(int64_t bytes, const char *what) {
    Memory m;
    if (bytes == 0) return m;
    void *at = take(static_cast<size_t>(bytes), granule);
    if (at == nullptr) fail(MDLM_ERROR_MEMORY, "%s: %lld bytes could not be allocated", what, (long long)bytes);
    m.from_ = this, m.at_ = at, m.bytes_ = bytes;
    if (reinterpret_cast<uintptr_t>(at) % granule != 0)
        fail(MDLM_ERROR_CALLBACK, "%s: the allocator gave memory that is not aligned to %lld", what, (long long)granule);
    return m;
}

}  // namespace mdlm

// SPDX-License-Identifier: Apache-2.0
#include "block/memory.hpp"

#include <algorithm>
#include <new>

#if defined(__linux__)
#include <sys/mman.h>
#endif

#include "base/float_environment.hpp"
#include "base/sizes.hpp"

namespace mdlm {
namespace {

// Large memory stands on huge pages where the system has them: a matrix whose rows lie pages apart would wait for
// address translation.
constexpr size_t huge_page = size_t{2} << 20, large = 4 * huge_page;
std::align_val_t own_alignment(size_t bytes, size_t alignment) {
    return std::align_val_t(bytes >= large ? std::max(alignment, huge_page) : alignment);
}

void *own_alloc(void *, size_t bytes, size_t alignment, void *) {
    void *at = ::operator new(bytes, own_alignment(bytes, alignment), std::nothrow);
#if defined(MADV_HUGEPAGE)
    // Whole pages only, so that nothing beyond grows. Advice that is not taken changes nothing.
    if (at != nullptr && bytes >= large) madvise(at, bytes / huge_page * huge_page, MADV_HUGEPAGE);
#endif
    return at;
}
void own_free(void *, void *at, size_t bytes, size_t alignment, void *) {
    ::operator delete(at, own_alignment(bytes, alignment));
}

}  // namespace

Memory::~Memory() {
    if (at_ != nullptr) from_->free(at_, static_cast<size_t>(bytes_), granule);
}

Allocator::Allocator(const mdlm_allocator *table) : table_{sizeof(mdlm_allocator), own_alloc, own_free, nullptr} {
    if (table != nullptr) table_ = *table, callers_ = true;
}

void *Allocator::alloc(size_t bytes, size_t alignment) {
    ++calls_;
    const CallersFloats floats;
    return table_.alloc(table_.payload, bytes, alignment, nullptr);
}

void Allocator::free(void *at, size_t bytes, size_t alignment) {
    if (callers_ && made_.another_process()) return;
    const CallersFloats floats;
    table_.free(table_.payload, at, bytes, alignment, nullptr);
}

Memory Allocator::allocate(int64_t bytes, const char *what) {
    Memory m;
    if (bytes == 0) return m;
    void *at = alloc(static_cast<size_t>(bytes), granule);
    if (at == nullptr) fail(MDLM_ERROR_MEMORY, "%s: %lld bytes could not be allocated", what, (long long)bytes);
    m.from_ = this, m.at_ = at, m.bytes_ = bytes;
    if (reinterpret_cast<uintptr_t>(at) % granule != 0)
        fail(MDLM_ERROR_CALLBACK, "%s: the allocator gave memory that is not aligned to %lld", what,
             (long long)granule);
    return m;
}

}  // namespace mdlm

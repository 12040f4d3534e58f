// SPDX-License-Identifier: Apache-2.0
#include "block/memory.hpp"

#include "base/float_environment.hpp"
#include "base/sizes.hpp"

namespace mdlm {
namespace {

// Nothing that is enqueued uses any memory after it. What failed is reported elsewhere.
void wait_for(Device &device) {
    try {
        device.synchronize();
    } catch (const Error &) {
    }
}

}  // namespace

Memory::~Memory() {
    if (at_ != nullptr) from_->free(at_, static_cast<size_t>(bytes_), granule);
}

Allocator::Allocator(Device &device, Of what, const mdlm_allocator *table)
    : device_(device), of_(what), callers_(table != nullptr) {
    if (table != nullptr) table_ = *table;
}

void *Allocator::alloc(size_t bytes, size_t alignment) {
    ++calls_;
    if (!callers_)
        return of_ == Of::device ? device_.allocate(bytes, alignment) : device_.allocate_pinned(bytes, alignment);
    const CallersFloats floats;
    return table_.alloc(table_.payload, bytes, alignment, nullptr);
}

void Allocator::free(void *at, size_t bytes, size_t alignment) {
    if (made_.another_process()) {
        // The caller's functions and devices with streams may count on what is not there.
        if (!callers_ && !device_.traits().asynchronous) free_host(at, bytes, alignment);
        return;
    }
    wait_for(device_);
    if (!callers_)
        return of_ == Of::device ? device_.free(at, bytes, alignment) : device_.free_pinned(at, bytes, alignment);
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

// SPDX-License-Identifier: Apache-2.0
#include "device/host_memory.hpp"

#include <algorithm>
#include <new>

#if defined(__linux__)
#include <sys/mman.h>
#endif

namespace mdlm {
namespace {

// Large memory stands on huge pages where the system has them: a matrix whose rows lie pages apart would wait for
// address translation.
constexpr size_t huge_page = size_t{2} << 20, large = 4 * huge_page;
std::align_val_t own_alignment(size_t bytes, size_t alignment) {
    return std::align_val_t(bytes >= large ? std::max(alignment, huge_page) : alignment);
}

}  // namespace

void *allocate_host(size_t bytes, size_t alignment) {
    void *at = ::operator new(bytes, own_alignment(bytes, alignment), std::nothrow);
#if defined(MADV_HUGEPAGE)
    // Whole pages only, so that nothing beyond grows. Advice that is not taken changes nothing.
    if (at != nullptr && bytes >= large) madvise(at, bytes / huge_page * huge_page, MADV_HUGEPAGE);
#endif
    return at;
}

void free_host(void *memory, size_t bytes, size_t alignment) noexcept {
    ::operator delete(memory, own_alignment(bytes, alignment));
}

}  // namespace mdlm

// SPDX-License-Identifier: Apache-2.0
// malloc and its kin of the test program, found by all its libraries before libc's: they count while told to. Not with
// a sanitizer, which replaces them itself.
#include <atomic>
#include <cerrno>
#include <cstddef>
#include <cstdint>

#include "fault/inject.hpp"
#include "fault/malloc_count.hpp"

namespace mdlm_test {
std::atomic<bool> counting_malloc = false;
std::atomic<int64_t> malloc_calls = 0, malloc_calls_of_dnnl = 0;
}  // namespace mdlm_test

#if !defined(__SANITIZE_ADDRESS__)
namespace {
void note() {
    using namespace mdlm_test;
    if (counting_malloc) ++(inject::inside_dnnl > 0 ? malloc_calls_of_dnnl : malloc_calls);
}
}  // namespace

extern "C" {
void *__libc_malloc(size_t);
void *__libc_calloc(size_t, size_t);
void *__libc_realloc(void *, size_t);
void *__libc_memalign(size_t, size_t);

void *malloc(size_t n) {
    note();
    return __libc_malloc(n);
}
void *calloc(size_t n, size_t size) {
    note();
    return __libc_calloc(n, size);
}
void *realloc(void *p, size_t n) {
    note();
    return __libc_realloc(p, n);
}
void *memalign(size_t alignment, size_t n) {
    note();
    return __libc_memalign(alignment, n);
}
void *aligned_alloc(size_t alignment, size_t n) {
    note();
    return __libc_memalign(alignment, n);
}
int posix_memalign(void **out, size_t alignment, size_t n) {
    note();
    void *p = __libc_memalign(alignment, n);
    if (p == nullptr) return ENOMEM;
    *out = p;
    return 0;
}
}
#endif

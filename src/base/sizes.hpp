// Size arithmetic: every product and sum of a size is checked, and every buffer is rounded up by the one function here.
#pragma once
#include <cstdint>

#include "base/status.hpp"

namespace mdlm {

inline int64_t mul(int64_t a, int64_t b) {
    int64_t r = 0;
    if (__builtin_mul_overflow(a, b, &r)) fail(MDLM_ERROR_OVERFLOW, "size overflows: %lld * %lld is past 2^63 - 1", (long long)a, (long long)b);
    return r;
}
inline int64_t add(int64_t a, int64_t b) {
    int64_t r = 0;
    if (__builtin_add_overflow(a, b, &r)) fail(MDLM_ERROR_OVERFLOW, "size overflows: %lld + %lld is past 2^63 - 1", (long long)a, (long long)b);
    return r;
}
constexpr int64_t ceil_div(int64_t a, int64_t b) { return a / b + (a % b != 0); }

// Offsets and sizes in the arena are multiples of this; it is also the alignment of the arena and of flat parameter buffers.
inline constexpr int64_t granule = 256;
inline int64_t rounded(int64_t bytes) { return add(bytes, granule - 1) / granule * granule; }

}  // namespace mdlm

// SPDX-License-Identifier: Apache-2.0
// Size arithmetic: every product and sum of a size is checked, and every buffer is rounded up by the one function here.
#pragma once
#include <concepts>
#include <cstdint>

#include "base/status.hpp"

namespace mdlm {

inline int64_t mul(int64_t a, int64_t b) {
    int64_t r = 0;
    if (__builtin_mul_overflow(a, b, &r))
        fail(MDLM_ERROR_OVERFLOW, "size overflows: %lld * %lld is past 2^63 - 1", (long long)a, (long long)b);
    return r;
}
inline int64_t add(int64_t a, int64_t b) {
    int64_t r = 0;
    if (__builtin_add_overflow(a, b, &r))
        fail(MDLM_ERROR_OVERFLOW, "size overflows: %lld + %lld is past 2^63 - 1", (long long)a, (long long)b);
    return r;
}
// A number that formulas work with as with any other, every sum and product checked.
class Checked {
public:
    constexpr explicit Checked(int64_t value) : value_(value) {}
    constexpr operator int64_t() const { return value_; }
    friend Checked operator*(Checked a, Checked b) { return Checked(mul(a.value_, b.value_)); }
    friend Checked operator+(Checked a, Checked b) { return Checked(add(a.value_, b.value_)); }
    template <std::integral T>
    friend Checked operator*(Checked a, T b) {
        return a * Checked(b);
    }
    template <std::integral T>
    friend Checked operator*(T a, Checked b) {
        return Checked(a) * b;
    }
    template <std::integral T>
    friend Checked operator+(Checked a, T b) {
        return a + Checked(b);
    }
    template <std::integral T>
    friend Checked operator+(T a, Checked b) {
        return Checked(a) + b;
    }

private:
    int64_t value_;
};

// Runs f; what overflows inside are `what`, in the error's words.
template <class F>
auto sizes_of(const char *what, F &&f) {
    try {
        return f();
    } catch (const Error &e) {
        if (e.status() != MDLM_ERROR_OVERFLOW) throw;
        fail(MDLM_ERROR_OVERFLOW, "%s do not fit in 63 bits (%s)", what, e.what());
    }
}

constexpr int64_t ceil_div(int64_t a, int64_t b) { return a / b + (a % b != 0); }

// Offsets and sizes in the arena are multiples of this; it is also the alignment of the arena and of flat parameter
// buffers.
inline constexpr int64_t granule = 256;
inline int64_t rounded(int64_t bytes) { return add(bytes, granule - 1) / granule * granule; }

}  // namespace mdlm

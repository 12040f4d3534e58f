// SPDX-License-Identifier: Apache-2.0
#include "device/cpu/targets.hpp"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "device/cpu/masked_products.cpp"
#include "hwy/foreach_target.h"

#include "device/cpu/masked_products.hpp"
#include "device/cpu/vector-inl.hpp"

HWY_BEFORE_NAMESPACE();
namespace mdlm::cpu::HWY_NAMESPACE {

// 0 times a number is 0, times all else NaN, and a NaN stays in a sum.
bool all_finite(const float *x, int64_t rows, int64_t columns, int64_t row) {
    const V zero = hn::Zero(Floats());
    V one = zero, other = zero;
    for (int64_t r = 0; r < rows; ++r)
        for (int64_t c = 0; c < columns; c += 2 * lanes) {
            one = hn::MulAdd(load(x + r * row + c), zero, one);
            other = hn::MulAdd(load(x + r * row + c + lanes), zero, other);
        }
    const float total = sum_of(hn::Add(one, other));
    return total == total;
}

}  // namespace mdlm::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace mdlm::cpu {
namespace {
HWY_EXPORT(all_finite);

// Columns of b are padded with zeros to whole vectors.
bool all_finite(const float *b, int64_t rows, int64_t n, int64_t b_row) {
    return HWY_DYNAMIC_DISPATCH(all_finite)(b, rows, padded(n, product_n), b_row);
}

// c[n] = the sum over p in [begin, end) of a[p * a_k] b[p, n], or += it.
void sum_row(int64_t begin, int64_t end, const float *a, int64_t a_k, const float *b, int64_t b_row, int64_t n,
             float *c, bool add) {
    for (int64_t c0 = 0; c0 < n; c0 += max_span) {
        const int64_t count = std::min(max_span, n - c0);
        float sums[product_m * max_span];  // the product makes that many rows, here of one
        product(1, count, end - begin, a + begin * a_k, 0, a_k, b + begin * b_row + c0, b_row, sums, max_span, false);
        for (int64_t i = 0; i < count; ++i) c[c0 + i] = add ? c[c0 + i] + sums[i] : sums[i];
    }
}

}  // namespace

void sum_over_keys(const Intervals &seen, const float *p, int64_t p_row, const float *b, int64_t b_row, int64_t n,
                   float *c, int64_t c_row, bool add) {
    if (seen.whole || all_finite(b, seen.columns, n, b_row))
        return product(seen.rows, n, seen.columns, p, p_row, 1, b, b_row, c, c_row, add);
    for (int64_t r = 0; r < seen.rows; ++r)
        sum_row(seen.begin[r], seen.end[r], p + r * p_row, 1, b, b_row, n, c + r * c_row, add);
}

void sum_over_queries(const Intervals &seen, const float *p, int64_t p_row, const float *b, int64_t b_row, int64_t n,
                      float *c, int64_t c_row, bool add) {
    if (seen.whole || all_finite(b, seen.rows, n, b_row))
        return product(seen.columns, n, seen.rows, p, 1, p_row, b, b_row, c, c_row, add);
    const auto sees = [&](int64_t r, int64_t j) { return seen.begin[r] <= j && j < seen.end[r]; };
    for (int64_t j = 0; j < seen.columns; ++j) {
        // Intervals never move back from one query to the next, so those that see a key are neighbours.
        int64_t begin = 0;
        while (begin < seen.rows && !sees(begin, j)) ++begin;
        int64_t end = begin;
        while (end < seen.rows && sees(end, j)) ++end;
        sum_row(begin, end, p + j, p_row, b, b_row, n, c + j * c_row, add);
    }
}

}  // namespace mdlm::cpu
#endif

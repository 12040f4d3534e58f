// SPDX-License-Identifier: Apache-2.0
#include "device/cpu/targets.hpp"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "device/cpu/attention_rows.cpp"
#include "hwy/foreach_target.h"

#include <limits>
#include <numbers>

#include "device/cpu/attention_rows.hpp"
#include "device/cpu/vector-inl.hpp"

HWY_BEFORE_NAMESPACE();
namespace mdlm::cpu::HWY_NAMESPACE {

static_assert(product_n % (2 * lanes) == 0);

HWY_INLINE void clear_outside(float *row, int64_t begin, int64_t end, int64_t width, float value) {
    std::fill(row, row + begin, value);
    std::fill(row + end, row + width, value);
}

void scale_rows(float *x, int64_t rows, int64_t columns, int64_t row, float factor) {
    const V by = broadcast(factor);
    for (int64_t r = 0; r < rows; ++r)
        vectors(columns, [&](int64_t c, int64_t count) HWY_ATTR {
            float *at = x + r * row + c;
            store(hn::Mul(load(at, count), by), at, count);
        });
}

void online_softmax(const Intervals &seen, float *scores, float *largest, double *totals, float *sums, int64_t sums_row,
                    int64_t width) {
    const int64_t n = padded(seen.columns, product_n);
    // All largest before any exponential: the rows' reductions overlap.
    float tops[tile_q];
    for (int64_t r = 0; r < seen.rows; ++r) {
        float *row = scores + r * score_row;
        const int64_t begin = seen.begin[r], end = seen.end[r];
        if (begin > 0 || end < n) clear_outside(row, begin, end, n, -INFINITY);
        V one = broadcast(largest[r]), other = one;
        for (int64_t j = 0; j < n; j += 2 * lanes) {
            one = hn::Max(one, load(row + j));
            other = hn::Max(other, load(row + j + lanes));
        }
        tops[r] = hn::GetLane(hn::Ceil(hn::MaxOfLanes(Floats(), hn::Max(one, other))));
    }
    for (int64_t r = 0; r < seen.rows; ++r) {
        float *row = scores + r * score_row;
        if (seen.begin[r] == seen.end[r]) {
            std::fill_n(row, n, 0.0f);
            continue;
        }
        // Where every score so far is -infinity, their exponentials are 0.
        const V top = broadcast(tops[r] == -INFINITY ? 0.0f : tops[r]);
        V one = hn::Zero(Floats()), other = one;
        for (int64_t j = 0; j < n; j += 2 * lanes) {
            const V e = exp2_of(hn::Sub(load(row + j), top)), f = exp2_of(hn::Sub(load(row + j + lanes), top));
            store(e, row + j);
            store(f, row + j + lanes);
            one = hn::Add(one, e);
            other = hn::Add(other, f);
        }
        const float before = largest[r];
        const auto total = static_cast<double>(sum_of(hn::Add(one, other)));
        largest[r] = tops[r];
        if (tops[r] == before) {
            totals[r] += total;
            continue;
        }
        // 0 before the first tile, where largest is -infinity and the sums are 0.
        const float shrink = totals[r] == 0.0 ? 0.0f : hn::GetLane(exp2_of(broadcast(before - tops[r])));
        totals[r] = totals[r] * static_cast<double>(shrink) + total;
        float *mine = sums + r * sums_row;
        const V factor = broadcast(shrink);
        for (int64_t c = 0; c < width; c += lanes) store(hn::Mul(load(mine + c), factor), mine + c);
    }
}

void score_gradients(const Intervals &seen, float *scores, const float *largest, const float *inverse, const float *d,
                     const float *factors, float *gradients) {
    const int64_t n = padded(seen.columns, product_n);
    for (int64_t r = 0; r < seen.rows; ++r) {
        float *row = scores + r * score_row, *gradient = gradients + r * score_row;
        const float *factor = factors != nullptr ? factors + r * score_row : nullptr;
        const int64_t begin = seen.begin[r], end = seen.end[r];
        if (begin == end) {
            std::fill_n(row, n, 0.0f);
            std::fill_n(gradient, n, 0.0f);
            continue;
        }
        const V top = broadcast(largest[r]), share = broadcast(inverse[r]), all = broadcast(d[r]);
        if (factor == nullptr)
            for (int64_t j = 0; j < n; j += lanes) {
                const V p = hn::Mul(exp2_of(hn::Sub(load(row + j), top)), share);
                store(p, row + j);
                store(hn::Mul(p, hn::Sub(load(gradient + j), all)), gradient + j);
            }
        else
            for (int64_t j = 0; j < n; j += lanes) {
                const V p = hn::Mul(exp2_of(hn::Sub(load(row + j), top)), share), f = load(factor + j);
                store(hn::Mul(p, f), row + j);
                store(hn::Mul(p, hn::MulSub(load(gradient + j), f, all)), gradient + j);
            }
        if (begin == 0 && end == n) continue;
        clear_outside(row, begin, end, n, 0.0f);
        clear_outside(gradient, begin, end, n, 0.0f);
    }
}

}  // namespace mdlm::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace mdlm::cpu {
namespace {
HWY_EXPORT(scale_rows);
HWY_EXPORT(online_softmax);
HWY_EXPORT(score_gradients);
}  // namespace

ScoreScale::ScoreScale(double scale)
    : query(static_cast<float>(
          std::min(scale * std::numbers::log2e, static_cast<double>(std::numeric_limits<float>::max())))),
      key(query == 0.0f ? 0.0 : scale / static_cast<double>(query)) {}

void scale_rows(float *x, int64_t rows, int64_t columns, int64_t row, float factor) {
    HWY_DYNAMIC_DISPATCH(scale_rows)(x, rows, columns, row, factor);
}
void online_softmax(const Intervals &seen, float *scores, float *largest, double *totals, float *sums, int64_t sums_row,
                    int64_t width) {
    HWY_DYNAMIC_DISPATCH(online_softmax)(seen, scores, largest, totals, sums, sums_row, width);
}
void score_gradients(const Intervals &seen, float *scores, const float *largest, const float *inverse, const float *d,
                     const float *factors, float *gradients) {
    HWY_DYNAMIC_DISPATCH(score_gradients)(seen, scores, largest, inverse, d, factors, gradients);
}

}  // namespace mdlm::cpu
#endif

#include "device/cpu/targets.hpp"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "device/cpu/attention_rows.cpp"
#include "hwy/foreach_target.h"

#include <numbers>

#include "device/cpu/attention_rows.hpp"
#include "device/cpu/vector-inl.hpp"

HWY_BEFORE_NAMESPACE();
namespace mdlm::cpu::HWY_NAMESPACE {

static_assert(product_n % (2 * lanes) == 0);

// e^(scale x) = 2^(this x).
HWY_INLINE V in_powers_of_2(double scale) { return broadcast(static_cast<float>(scale * std::numbers::log2e)); }

HWY_INLINE void clear_outside(float *row, int64_t begin, int64_t end, int64_t width, float value) {
    std::fill(row, row + begin, value);
    std::fill(row + end, row + width, value);
}

void online_softmax(const ScoreTile &t, double scale, float *largest, float *totals, float *sums, int64_t sums_row, int64_t width) {
    const int64_t n = padded(t.columns, product_n);
    const V by = in_powers_of_2(scale);
    // All largest before any exponential: the rows' reductions overlap.
    float tops[tile_q];
    for (int64_t r = 0; r < t.rows; ++r) {
        float *row = t.scores + r * score_row;
        const int64_t begin = t.begin[r], end = t.end[r];
        if (begin > 0 || end < n) clear_outside(row, begin, end, n, scale < 0.0 ? INFINITY : -INFINITY);
        V one = broadcast(largest[r]), other = one;
        for (int64_t j = 0; j < n; j += 2 * lanes) {
            one = hn::Max(one, hn::Mul(load(row + j), by));
            other = hn::Max(other, hn::Mul(load(row + j + lanes), by));
        }
        tops[r] = max_of(hn::Max(one, other));
    }
    for (int64_t r = 0; r < t.rows; ++r) {
        float *row = t.scores + r * score_row;
        const int64_t begin = t.begin[r], end = t.end[r];
        if (begin == end) {
            std::fill_n(row, n, 0.0f);
            continue;
        }
        const V top = broadcast(tops[r]);
        V one = hn::Zero(Floats()), other = one;
        for (int64_t j = 0; j < n; j += 2 * lanes) {
            const V e = exp2_of(hn::MulSub(load(row + j), by, top)), f = exp2_of(hn::MulSub(load(row + j + lanes), by, top));
            store(e, row + j);
            store(f, row + j + lanes);
            one = hn::Add(one, e);
            other = hn::Add(other, f);
        }
        if (begin > 0 || end < n) {  // where 2^-125 stands for 0
            clear_outside(row, begin, end, n, 0.0f);
            one = other = hn::Zero(Floats());
            for (int64_t j = 0; j < n; j += 2 * lanes) {
                one = hn::Add(one, load(row + j));
                other = hn::Add(other, load(row + j + lanes));
            }
        }
        const float before = largest[r], total = sum_of(hn::Add(one, other));
        largest[r] = tops[r];
        if (tops[r] == before) {
            totals[r] += total;
            continue;
        }
        // 0 before the first tile, where largest is -infinity and the sums are 0.
        const float shrink = totals[r] == 0.0f ? 0.0f : hn::GetLane(exp2_of(broadcast(before - tops[r])));
        totals[r] = totals[r] * shrink + total;
        float *mine = sums + r * sums_row;
        const V factor = broadcast(shrink);
        for (int64_t c = 0; c < width; c += lanes) store(hn::Mul(load(mine + c), factor), mine + c);
    }
}

void score_gradients(const ScoreTile &t, double scale, const float *lse, const float *d, const float *factors, float *gradients) {
    const int64_t n = padded(t.columns, product_n);
    const V by = in_powers_of_2(scale);
    for (int64_t r = 0; r < t.rows; ++r) {
        float *row = t.scores + r * score_row, *gradient = gradients + r * score_row;
        const float *factor = factors != nullptr ? factors + r * score_row : nullptr;
        const int64_t begin = t.begin[r], end = t.end[r];
        if (begin == end) {
            std::fill_n(row, n, 0.0f);
            std::fill_n(gradient, n, 0.0f);
            continue;
        }
        const V l = broadcast(lse[r] * std::numbers::log2e_v<float>), all = broadcast(d[r]);
        if (factor == nullptr)
            for (int64_t j = 0; j < n; j += lanes) {
                const V p = exp2_of(hn::MulSub(load(row + j), by, l));
                store(p, row + j);
                store(hn::Mul(p, hn::Sub(load(gradient + j), all)), gradient + j);
            }
        else
            for (int64_t j = 0; j < n; j += lanes) {
                const V p = exp2_of(hn::MulSub(load(row + j), by, l)), f = load(factor + j);
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
HWY_EXPORT(online_softmax);
HWY_EXPORT(score_gradients);
}  // namespace

void online_softmax(const ScoreTile &tile, double scale, float *largest, float *totals, float *sums, int64_t sums_row, int64_t width) {
    HWY_DYNAMIC_DISPATCH(online_softmax)(tile, scale, largest, totals, sums, sums_row, width);
}
void score_gradients(const ScoreTile &tile, double scale, const float *lse, const float *d, const float *factors, float *gradients) {
    HWY_DYNAMIC_DISPATCH(score_gradients)(tile, scale, lse, d, factors, gradients);
}

}  // namespace mdlm::cpu
#endif

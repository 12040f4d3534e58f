// SPDX-License-Identifier: Apache-2.0
// LayerNorm and RMSNorm, row by row. xhat = (x - mean) rstd, y = xhat w + bias;
// dx = add + rstd (g - mean(g) - xhat mean(g xhat)) with g = dy w, without mean(g) for RMSNorm; dw = sum dy xhat, dbias
// = sum dy. A row is read from memory once: what comes after finds it in the cache.
#include "device/cpu/targets.hpp"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "device/cpu/norm.cpp"
#include "hwy/foreach_target.h"

#include <cmath>

#include "device/cpu/kernels.hpp"
#include "device/cpu/moments.hpp"
#include "device/cpu/row_sums.hpp"
#include "device/cpu/spans.hpp"
#include "device/cpu/tasks.hpp"
#include "device/cpu/vector-inl.hpp"

HWY_BEFORE_NAMESPACE();
namespace mdlm::cpu::HWY_NAMESPACE {
namespace norm {

// Two sums along a row, by body(c, n, first, second). Sums of at most `span` floats are float, those of spans are
// double.
struct Sums {
    double first = 0.0, second = 0.0;
};
template <class Body>
HWY_INLINE Sums summed(int64_t width, const Body &body) {
    Sums total;
    for (int64_t c0 = 0; c0 < width; c0 += max_span) {
        V first = hn::Zero(Floats()), second = first;
        vectors(std::min(max_span, width - c0), [&](int64_t c, int64_t n) HWY_ATTR { body(c0 + c, n, first, second); });
        total.first += static_cast<double>(sum_of(first));
        total.second += static_cast<double>(sum_of(second));
    }
    return total;
}

// Of a vector that was read past the end of the row, only the first n lanes.
HWY_INLINE V within(V v, int64_t n) {
    if (n == lanes) return v;
    return hn::IfThenElseZero(hn::FirstN(Floats(), static_cast<size_t>(n)), v);
}

// The mean is taken in two steps: a middle, which a sum of floats rounds, and how far off it is, which floats near it
// tell well.
template <class T>
void forward_row(const NormForward &a, int64_t row, const T *weight, const T *bias) {
    const T *x = static_cast<const T *>(a.x) + row * a.width;
    T *y = static_cast<T *>(a.y) + row * a.width;
    const auto width = static_cast<double>(a.width);
    float middle = 0.0f;
    Sums about;
    if (!a.rms) {
        middle = static_cast<float>(
            summed(a.width, [&](int64_t c, int64_t n, V &s, V &) HWY_ATTR { s = hn::Add(s, load(x + c, n)); }).first /
            width);
        about = summed(a.width, [&](int64_t c, int64_t n, V &squares, V &s) HWY_ATTR {
            const V v = within(hn::Sub(load(x + c, n), broadcast(middle)), n);
            squares = hn::MulAdd(v, v, squares);
            s = hn::Add(s, v);
        });
    } else {
        about = summed(a.width, [&](int64_t c, int64_t n, V &squares, V &) HWY_ATTR {
            const V v = load(x + c, n);
            squares = hn::MulAdd(v, v, squares);
        });
    }
    const double square = about.first / width, off = about.second / width;
    if (!float_does(square, off, a.epsilon)) return exact_norm_forward(a, row);
    const double exact = 1.0 / std::sqrt(variance_of(square, off) + a.epsilon);
    const auto rstd = static_cast<float>(exact);
    const V m = broadcast(middle), r = broadcast(rstd), shift = broadcast(static_cast<float>(-off * exact));
    const V base = broadcast(a.zero_centered ? 1.0f : 0.0f);
    vectors(a.width, [&](int64_t c, int64_t n) HWY_ATTR {
        const V w = hn::Add(load(weight + c, n), base), xhat = hn::MulAdd(hn::Sub(load(x + c, n), m), r, shift);
        store(bias != nullptr ? hn::MulAdd(xhat, w, load(bias + c, n)) : hn::Mul(xhat, w), y + c, n);
    });
    static_cast<float *>(a.rstd)[row] = rstd;
    if (a.mean != nullptr) static_cast<float *>(a.mean)[row] = static_cast<float>(static_cast<double>(middle) + off);
}

template <class T>
void forward(const NormForward &a, int64_t begin, int64_t end) {
    for (int64_t row = begin; row < end; ++row)
        forward_row(a, row, static_cast<const T *>(a.weight), static_cast<const T *>(a.bias));
}

// Adds to the sums over rows (or null) first, since dx may lie over dy.
template <class T>
void backward_row(const NormBackward &a, int64_t row, float *dweight, float *dbias) {
    const T *dy = static_cast<const T *>(a.dy) + row * a.width, *x = static_cast<const T *>(a.x) + row * a.width;
    const T *weight = static_cast<const T *>(a.weight),
            *add = a.add != nullptr ? static_cast<const T *>(a.add) + row * a.width : nullptr;
    T *dx = a.dx != nullptr ? static_cast<T *>(a.dx) + row * a.width : nullptr;
    const float stored_mean = a.mean != nullptr ? static_cast<const float *>(a.mean)[row] : 0.0f;
    const float stored_rstd = static_cast<const float *>(a.rstd)[row];
    if (!float_does(stored_mean, stored_rstd)) return exact_norm_backward(a, row, dweight, dbias);
    const V mean = broadcast(stored_mean), rstd = broadcast(stored_rstd),
            base = broadcast(a.zero_centered ? 1.0f : 0.0f);
    const Sums along = summed(a.width, [&](int64_t c, int64_t n, V &x_sum, V &sum) HWY_ATTR {
        const V d = load(dy + c, n), xhat = hn::Mul(hn::Sub(load(x + c, n), mean), rstd),
                g = hn::Mul(d, hn::Add(load(weight + c, n), base));
        if (dweight != nullptr) store(hn::MulAdd(d, xhat, load(dweight + c, n)), dweight + c, n);
        if (dbias != nullptr) store(hn::Add(load(dbias + c, n), d), dbias + c, n);
        x_sum = hn::MulAdd(g, xhat, x_sum);
        if (!a.rms) sum = hn::Add(sum, g);
    });
    if (dx == nullptr) return;
    if (!float_did(along.first, along.second)) return exact_norm_backward(a, row, nullptr, nullptr);
    const V mean_gx = broadcast(static_cast<float>(along.first / static_cast<double>(a.width)));
    const V mean_g = broadcast(static_cast<float>(along.second / static_cast<double>(a.width)));
    vectors(a.width, [&](int64_t c, int64_t n) HWY_ATTR {
        const V g = hn::Mul(load(dy + c, n), hn::Add(load(weight + c, n), base)),
                xhat = hn::Mul(hn::Sub(load(x + c, n), mean), rstd);
        V v = hn::Mul(rstd, hn::NegMulAdd(xhat, mean_gx, hn::Sub(g, mean_g)));
        if (add != nullptr) v = hn::Add(v, load(add + c, n));
        store(v, dx + c, n);
    });
}

}  // namespace norm

void norm_forward_rows(const NormForward &a, int64_t begin, int64_t end) {
    if (a.dtype == DType::f32) norm::forward<float>(a, begin, end);
    else norm::forward<bf16>(a, begin, end);
}
void norm_backward_rows(const NormBackward &a, int64_t begin, int64_t end, float *dweight, float *dbias) {
    for (int64_t row = begin; row < end; ++row)
        if (a.dtype == DType::f32) norm::backward_row<float>(a, row, dweight, dbias);
        else norm::backward_row<bf16>(a, row, dweight, dbias);
}

}  // namespace mdlm::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace mdlm::cpu {
namespace {
HWY_EXPORT(norm_forward_rows);
HWY_EXPORT(norm_backward_rows);
}  // namespace

void norm_forward(Pool &pool, const NormForward &a) {
    parallel_ranges(pool, a.rows, a.width, [&](int64_t begin, int64_t end, int32_t) {
        HWY_DYNAMIC_DISPATCH(norm_forward_rows)(a, begin, end);
    });
}

void norm_backward(Pool &pool, const NormBackward &a) {
    const bool weight = a.dweight != nullptr, bias = a.dbias != nullptr;
    const int64_t bias_at = weight ? a.width : 0;
    const RowSums sums(a.rows, bias_at + (bias ? a.width : 0), a.workspace);
    sums.run(pool, [&](int64_t begin, int64_t end, float *block) {
        HWY_DYNAMIC_DISPATCH(norm_backward_rows)
        (a, begin, end, weight ? block : nullptr, bias ? block + bias_at : nullptr);
    });
    if (weight) sums.add_to(pool, 0, a.width, static_cast<float *>(a.dweight), a.accumulate);
    if (bias) sums.add_to(pool, bias_at, a.width, static_cast<float *>(a.dbias), a.accumulate);
}

int64_t norm_backward_workspace(const KernelSize &s, int32_t threads) {
    return RowSums::bytes(s.rows, mul(2, s.n), threads);
}

}  // namespace mdlm::cpu
#endif

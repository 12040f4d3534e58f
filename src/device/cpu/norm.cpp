// LayerNorm and RMSNorm, row by row. xhat = (x - mean) rstd, y = xhat w + bias;
// dx = add + rstd (g - mean(g) - xhat mean(g xhat)) with g = dy w, without mean(g) for RMSNorm; dw = sum dy xhat, dbias = sum dy.
// A row is read from memory once: what comes after finds it in the cache.
#include "device/cpu/targets.hpp"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "device/cpu/norm.cpp"
#include "hwy/foreach_target.h"

#include <cmath>
#include <cstring>

#include "device/cpu/kernels.hpp"
#include "device/cpu/spans.hpp"
#include "device/cpu/tasks.hpp"
#include "device/cpu/vector-inl.hpp"

HWY_BEFORE_NAMESPACE();
namespace mdlm::cpu::HWY_NAMESPACE {
namespace norm {

// Sums of at most `span` floats are float, those of spans are double.
template <class Body>
HWY_INLINE double summed(int64_t width, const Body &body) {
    double total = 0.0;
    for (int64_t c0 = 0; c0 < width; c0 += span) {
        V sum = hn::Zero(Floats());
        vectors(std::min(span, width - c0), [&](int64_t c, int64_t n) HWY_ATTR { sum = body(c0 + c, n, sum); });
        total += static_cast<double>(sum_of(sum));
    }
    return total;
}

// Of a vector that was read past the end of the row, only the first n lanes.
HWY_INLINE V first(V v, int64_t n) {
    if (n == lanes) return v;
    return hn::IfThenElseZero(hn::FirstN(Floats(), static_cast<size_t>(n)), v);
}

template <class T>
void forward_row(const NormForward &a, int64_t row, const T *weight, const T *bias) {
    const T *x = static_cast<const T *>(a.x) + row * a.width;
    T *y = static_cast<T *>(a.y) + row * a.width;
    float mean = 0.0f;
    if (!a.rms)
        mean = static_cast<float>(summed(a.width, [&](int64_t c, int64_t n, V s) HWY_ATTR { return hn::Add(s, load(x + c, n)); }) /
                                  static_cast<double>(a.width));
    const V m = broadcast(mean);
    const double squares = summed(a.width, [&](int64_t c, int64_t n, V s) HWY_ATTR {
        const V v = first(hn::Sub(load(x + c, n), m), n);
        return hn::MulAdd(v, v, s);
    });
    const auto rstd = static_cast<float>(1.0 / std::sqrt(squares / static_cast<double>(a.width) + a.epsilon));
    const V r = broadcast(rstd), base = broadcast(a.zero_centered ? 1.0f : 0.0f);
    vectors(a.width, [&](int64_t c, int64_t n) HWY_ATTR {
        V v = hn::Mul(hn::Mul(hn::Sub(load(x + c, n), m), r), hn::Add(load(weight + c, n), base));
        if (bias != nullptr) v = hn::Add(v, load(bias + c, n));
        store(v, y + c, n);
    });
    static_cast<float *>(a.rstd)[row] = rstd;
    if (a.mean != nullptr) static_cast<float *>(a.mean)[row] = mean;
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
    const T *weight = static_cast<const T *>(a.weight), *add = a.add != nullptr ? static_cast<const T *>(a.add) + row * a.width : nullptr;
    T *dx = a.dx != nullptr ? static_cast<T *>(a.dx) + row * a.width : nullptr;
    const V mean = broadcast(a.mean != nullptr ? static_cast<const float *>(a.mean)[row] : 0.0f);
    const V rstd = broadcast(static_cast<const float *>(a.rstd)[row]), base = broadcast(a.zero_centered ? 1.0f : 0.0f);
    double along_1 = 0.0;
    const double along_x = summed(a.width, [&](int64_t c, int64_t n, V s) HWY_ATTR {
        const V d = load(dy + c, n), xhat = hn::Mul(hn::Sub(load(x + c, n), mean), rstd);
        if (dweight != nullptr) store(hn::MulAdd(d, xhat, load(dweight + c, n)), dweight + c, n);
        if (dbias != nullptr) store(hn::Add(load(dbias + c, n), d), dbias + c, n);
        return hn::MulAdd(hn::Mul(d, hn::Add(load(weight + c, n), base)), xhat, s);
    });
    if (dx == nullptr) return;
    if (!a.rms)
        along_1 = summed(a.width, [&](int64_t c, int64_t n, V s) HWY_ATTR {
            return hn::MulAdd(load(dy + c, n), hn::Add(load(weight + c, n), base), s);
        });
    const V mean_gx = broadcast(static_cast<float>(along_x / static_cast<double>(a.width)));
    const V mean_g = broadcast(static_cast<float>(along_1 / static_cast<double>(a.width)));
    vectors(a.width, [&](int64_t c, int64_t n) HWY_ATTR {
        const V g = hn::Mul(load(dy + c, n), hn::Add(load(weight + c, n), base)), xhat = hn::Mul(hn::Sub(load(x + c, n), mean), rstd);
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
    parts(pool, a.rows, a.width, [&](int64_t begin, int64_t end, int32_t) { HWY_DYNAMIC_DISPATCH(norm_forward_rows)(a, begin, end); });
}

void norm_backward(Pool &pool, const NormBackward &a) {
    const Chunks chunks(a.rows);
    float *partial = static_cast<float *>(a.workspace);
    const int64_t stride = 2 * a.width;
    pool.each(chunks.count, [&](int64_t i, int32_t) {
        float *dweight = a.dweight != nullptr ? partial + i * stride : nullptr;
        float *dbias = a.dbias != nullptr ? partial + i * stride + a.width : nullptr;
        if (dweight != nullptr) std::memset(dweight, 0, static_cast<size_t>(a.width) * sizeof(float));
        if (dbias != nullptr) std::memset(dbias, 0, static_cast<size_t>(a.width) * sizeof(float));
        HWY_DYNAMIC_DISPATCH(norm_backward_rows)(a, chunks.begin(i), chunks.end(i), dweight, dbias);
    });
    if (a.dweight != nullptr)
        add_chunks(pool, partial, chunks.count, stride, a.width, static_cast<float *>(a.dweight), a.accumulate);
    if (a.dbias != nullptr)
        add_chunks(pool, partial + a.width, chunks.count, stride, a.width, static_cast<float *>(a.dbias), a.accumulate);
}

int64_t norm_backward_workspace(const KernelSize &s) { return mul(mul(Chunks::most(s.rows), mul(2, s.n)), sizeof(float)); }

}  // namespace mdlm::cpu
#endif

// SPDX-License-Identifier: Apache-2.0
// Bias + dropout + residual, its backward, and the activations: element by element, each one pass over memory.
#include "device/cpu/targets.hpp"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "device/cpu/pointwise.cpp"
#include "hwy/foreach_target.h"

#include <type_traits>

#include "device/cpu/activation-inl.hpp"
#include "device/cpu/kernels.hpp"
#include "device/cpu/spans.hpp"
#include "device/cpu/tasks.hpp"

HWY_BEFORE_NAMESPACE();
namespace mdlm::cpu::HWY_NAMESPACE {
namespace pointwise {

// Elements [c0, c0 + n) of one row, n <= span.
template <class T>
void add(const BiasDropoutAdd &a, int64_t row, int64_t c0, int64_t n) {
    const int64_t at = row * a.width + c0;
    const T *x = static_cast<const T *>(a.x) + at, *residual = static_cast<const T *>(a.residual) + at;
    const T *bias = a.bias != nullptr ? static_cast<const T *>(a.bias) + c0 : nullptr;
    T *y = static_cast<T *>(a.y) + at;
    float factors[max_span];
    if (a.dropout.on) draw(a.dropout, static_cast<uint64_t>(a.tokens.logical(row) * a.width + c0), n, factors);
    vectors(n, [&](int64_t c, int64_t count) HWY_ATTR {
        V v = load(x + c, count);
        if (bias != nullptr) v = hn::Add(v, load(bias + c, count));
        if (a.dropout.on) v = hn::Mul(v, load(factors + c, count));
        store(hn::Add(v, load(residual + c, count)), y + c, count);
    });
}

template <class T>
void drop(const DropoutBackward &a, int64_t row, int64_t c0, int64_t n) {
    const T *dy = static_cast<const T *>(a.dy) + row * a.width + c0;
    T *dx = static_cast<T *>(a.dx) + row * a.width + c0;
    float factors[max_span];
    draw(a.dropout, static_cast<uint64_t>(a.tokens.logical(row) * a.width + c0), n, factors);
    vectors(n, [&](int64_t c, int64_t count)
                   HWY_ATTR { store(hn::Mul(load(dy + c, count), load(factors + c, count)), dx + c, count); });
}

template <mdlm_activation kind>
inline constexpr bool gated = kind == MDLM_ACT_SWIGLU || kind == MDLM_ACT_GEGLU;

template <class T, mdlm_activation kind>
void activate(const ActivationForward &a, int64_t row, int64_t c0, int64_t n) {
    const T *g = static_cast<const T *>(a.g) + row * a.width * (gated<kind> ? 2 : 1) + c0;
    T *m = static_cast<T *>(a.m) + row * a.width + c0;
    vectors(n, [&](int64_t c, int64_t count) HWY_ATTR {
        V y = act<kind, false>(load(g + c, count)).y;
        if constexpr (gated<kind>) y = hn::Mul(y, load(g + a.width + c, count));
        store(y, m + c, count);
    });
}

// dg may lie over g: a vector of gate and up is read before either is written.
template <class T, mdlm_activation kind>
void differentiate(const ActivationBackward &a, int64_t row, int64_t c0, int64_t n) {
    const int64_t at = row * a.width * (gated<kind> ? 2 : 1) + c0;
    const T *g = static_cast<const T *>(a.g) + at, *dm = static_cast<const T *>(a.dm) + row * a.width + c0;
    T *dg = static_cast<T *>(a.dg) + at;
    vectors(n, [&](int64_t c, int64_t count) HWY_ATTR {
        const Acted acted = act<kind, true>(load(g + c, count));
        const V d = load(dm + c, count);
        // Before the gate's other factor: not larger than d, so nothing overflows that need not.
        V dx = hn::Mul(acted.slope, d);
        if constexpr (half_slope<kind>) dx = hn::Add(dx, dx);
        if constexpr (gated<kind>) {
            const V up = load(g + a.width + c, count);
            store(hn::Mul(acted.y, d), dg + a.width + c, count);
            dx = hn::Mul(dx, up);
        }
        store(dx, dg + c, count);
    });
}

// Calls body with the kind as a constant.
template <class Body>
HWY_INLINE void by_kind(mdlm_activation kind, const Body &body) {
    switch (kind) {
    case MDLM_ACT_GELU: return body(std::integral_constant<mdlm_activation, MDLM_ACT_GELU>());
    case MDLM_ACT_GELU_TANH: return body(std::integral_constant<mdlm_activation, MDLM_ACT_GELU_TANH>());
    case MDLM_ACT_SQUARED_RELU: return body(std::integral_constant<mdlm_activation, MDLM_ACT_SQUARED_RELU>());
    case MDLM_ACT_SWIGLU: return body(std::integral_constant<mdlm_activation, MDLM_ACT_SWIGLU>());
    default: return body(std::integral_constant<mdlm_activation, MDLM_ACT_GEGLU>());
    }
}

}  // namespace pointwise

void bias_dropout_add_span(const BiasDropoutAdd &a, int64_t row, int64_t c0, int64_t n) {
    if (a.dtype == DType::f32) pointwise::add<float>(a, row, c0, n);
    else pointwise::add<bf16>(a, row, c0, n);
}
void dropout_backward_span(const DropoutBackward &a, int64_t row, int64_t c0, int64_t n) {
    if (a.dtype == DType::f32) pointwise::drop<float>(a, row, c0, n);
    else pointwise::drop<bf16>(a, row, c0, n);
}
void activation_forward_span(const ActivationForward &a, int64_t row, int64_t c0, int64_t n) {
    pointwise::by_kind(a.kind, [&](auto kind) HWY_ATTR {
        if (a.dtype == DType::f32) pointwise::activate<float, kind.value>(a, row, c0, n);
        else pointwise::activate<bf16, kind.value>(a, row, c0, n);
    });
}
void activation_backward_span(const ActivationBackward &a, int64_t row, int64_t c0, int64_t n) {
    pointwise::by_kind(a.kind, [&](auto kind) HWY_ATTR {
        if (a.dtype == DType::f32) pointwise::differentiate<float, kind.value>(a, row, c0, n);
        else pointwise::differentiate<bf16, kind.value>(a, row, c0, n);
    });
}

}  // namespace mdlm::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace mdlm::cpu {
namespace {

HWY_EXPORT(bias_dropout_add_span);
HWY_EXPORT(dropout_backward_span);
HWY_EXPORT(activation_forward_span);
HWY_EXPORT(activation_backward_span);

// Calls body(row, c0, n) on spans of rows, many tasks.
template <class Body>
void spans_of(Pool &pool, int64_t rows, int64_t width, Body &&body) {
    const int64_t across = ceil_div(width, max_span);
    parallel_ranges(pool, rows * across, std::min(max_span, width), [&](int64_t begin, int64_t end, int32_t) {
        for (int64_t i = begin; i < end; ++i) {
            const int64_t c0 = i % across * max_span;
            body(i / across, c0, std::min(max_span, width - c0));
        }
    });
}

}  // namespace

void transpose_pieces(Pool &pool, const TransposePieces &a) {
    const auto bytes = static_cast<size_t>(a.bytes);
    pool.parallel_for(a.rows * a.columns, [&](int64_t i, int32_t) {
        const int64_t row = i / a.columns, column = i % a.columns;
        std::memcpy(static_cast<char *>(a.to) + (column * a.rows + row) * a.bytes,
                    static_cast<const char *>(a.from) + i * a.bytes, bytes);
    });
}
void bias_dropout_add(Pool &pool, const BiasDropoutAdd &a) {
    spans_of(pool, a.tokens.rows(), a.width, [&](int64_t row, int64_t c0, int64_t n) {
        HWY_DYNAMIC_DISPATCH(bias_dropout_add_span)(a, row, c0, n);
    });
}
void dropout_backward(Pool &pool, const DropoutBackward &a) {
    spans_of(pool, a.tokens.rows(), a.width, [&](int64_t row, int64_t c0, int64_t n) {
        HWY_DYNAMIC_DISPATCH(dropout_backward_span)(a, row, c0, n);
    });
}
void activation_forward(Pool &pool, const ActivationForward &a) {
    spans_of(pool, a.rows, a.width, [&](int64_t row, int64_t c0, int64_t n) {
        HWY_DYNAMIC_DISPATCH(activation_forward_span)(a, row, c0, n);
    });
}
void activation_backward(Pool &pool, const ActivationBackward &a) {
    spans_of(pool, a.rows, a.width, [&](int64_t row, int64_t c0, int64_t n) {
        HWY_DYNAMIC_DISPATCH(activation_backward_span)(a, row, c0, n);
    });
}

}  // namespace mdlm::cpu
#endif

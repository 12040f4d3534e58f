// Bias + dropout + residual, its backward, and the activations: element by element.
#include "device/cpu/kernels.hpp"
#include "device/cpu/spans.hpp"
#include "device/cpu/tasks.hpp"

namespace mdlm::cpu {
namespace {

bool gated(mdlm_activation kind) { return kind == MDLM_ACT_SWIGLU || kind == MDLM_ACT_GEGLU; }

constexpr float root_half = 0.70710678118654752f, root_2_pi = 0.39894228040143268f;  // sqrt(1/2), 1 / sqrt(2 pi)
constexpr float two_root_2_pi = 1.59576912160573071f, cubic = 0.044715f;             // 2 sqrt(2 / pi)

// Every activation but squared ReLU is x gate(x):
//   gelu          cdf(x) = erfc(-x / sqrt 2) / 2; its slope is the normal density
//   swiglu        sigmoid(x)
//   the tanh form (1 + tanh u) / 2 = sigmoid(2 u), u = sqrt(2 / pi) (x + 0.044715 x^3): no cancellation for negative x
// slope may be null. n <= span.
void gates(mdlm_activation kind, const float *x, int64_t n, float *gate, float *slope) {
    if (kind == MDLM_ACT_GELU) {
        for (int64_t i = 0; i < n; ++i) gate[i] = 0.5f * std::erfc(x[i] * -root_half);
        if (slope == nullptr) return;
        for (int64_t i = 0; i < n; ++i) slope[i] = -0.5f * x[i] * x[i];
        exps(slope, n);
        for (int64_t i = 0; i < n; ++i) slope[i] *= root_2_pi;
        return;
    }
    if (kind == MDLM_ACT_SWIGLU)
        for (int64_t i = 0; i < n; ++i) gate[i] = -x[i];
    else
        for (int64_t i = 0; i < n; ++i) gate[i] = -two_root_2_pi * (x[i] + cubic * x[i] * x[i] * x[i]);
    exps(gate, n);
    for (int64_t i = 0; i < n; ++i) gate[i] = 1.0f / (1.0f + gate[i]);
    if (slope == nullptr) return;
    for (int64_t i = 0; i < n; ++i) slope[i] = gate[i] * (1.0f - gate[i]);
    if (kind != MDLM_ACT_SWIGLU)
        for (int64_t i = 0; i < n; ++i) slope[i] *= two_root_2_pi * (1.0f + 3.0f * cubic * x[i] * x[i]);
}

// y = act(x), and its slope or null; of a gated activation, the gate's part.
void activate(mdlm_activation kind, const float *x, int64_t n, float *y, float *slope) {
    if (kind == MDLM_ACT_SQUARED_RELU) {
        for (int64_t i = 0; i < n; ++i) y[i] = x[i] < 0.0f ? 0.0f : x[i] * x[i];
        for (int64_t i = 0; slope != nullptr && i < n; ++i) slope[i] = x[i] < 0.0f ? 0.0f : 2.0f * x[i];
        return;
    }
    gates(kind, x, n, y, slope);
    for (int64_t i = 0; slope != nullptr && i < n; ++i) slope[i] = y[i] + x[i] * slope[i];
    for (int64_t i = 0; i < n; ++i) y[i] *= x[i];
}

// Calls body(row, c0, n) on spans of rows, many tasks.
template <class Body>
void spans_of(Pool &pool, int64_t rows, int64_t width, Body &&body) {
    const int64_t across = ceil_div(width, span);
    parts(pool, rows * across, std::min(span, width), [&](int64_t begin, int64_t end, int32_t) {
        for (int64_t i = begin; i < end; ++i) {
            const int64_t c0 = i % across * span;
            body(i / across, c0, std::min(span, width - c0));
        }
    });
}

}  // namespace

void bias_dropout_add(Pool &pool, const BiasDropoutAdd &a) {
    spans_of(pool, a.tokens.rows(), a.width, [&](int64_t row, int64_t c0, int64_t n) {
        float x[span], other[span];
        const int64_t first = row * a.width + c0;
        read(a.dtype, a.x, first, n, x);
        if (a.bias != nullptr) {
            read(a.dtype, a.bias, c0, n, other);
            for (int64_t c = 0; c < n; ++c) x[c] += other[c];
        }
        if (a.dropout.on) {
            draw(a.dropout, static_cast<uint64_t>(a.tokens.logical(row) * a.width + c0), n, other);
            for (int64_t c = 0; c < n; ++c) x[c] *= other[c];
        }
        read(a.dtype, a.residual, first, n, other);
        for (int64_t c = 0; c < n; ++c) x[c] += other[c];
        write(a.dtype, a.y, first, n, x);
    });
}

void dropout_backward(Pool &pool, const DropoutBackward &a) {
    spans_of(pool, a.tokens.rows(), a.width, [&](int64_t row, int64_t c0, int64_t n) {
        float dy[span], factors[span];
        read(a.dtype, a.dy, row * a.width + c0, n, dy);
        draw(a.dropout, static_cast<uint64_t>(a.tokens.logical(row) * a.width + c0), n, factors);
        for (int64_t c = 0; c < n; ++c) dy[c] *= factors[c];
        write(a.dtype, a.dx, row * a.width + c0, n, dy);
    });
}

void activation_forward(Pool &pool, const ActivationForward &a) {
    const int64_t wide = gated(a.kind) ? 2 * a.width : a.width;
    spans_of(pool, a.rows, a.width, [&](int64_t row, int64_t c0, int64_t n) {
        float x[span], up[span], y[span];
        read(a.dtype, a.g, row * wide + c0, n, x);
        activate(a.kind, x, n, y, nullptr);
        if (gated(a.kind)) {
            read(a.dtype, a.g, row * wide + a.width + c0, n, up);
            for (int64_t c = 0; c < n; ++c) y[c] *= up[c];
        }
        write(a.dtype, a.m, row * a.width + c0, n, y);
    });
}

void activation_backward(Pool &pool, const ActivationBackward &a) {
    const int64_t wide = gated(a.kind) ? 2 * a.width : a.width;
    spans_of(pool, a.rows, a.width, [&](int64_t row, int64_t c0, int64_t n) {
        float x[span], up[span], dm[span], y[span], slope[span];
        read(a.dtype, a.g, row * wide + c0, n, x);
        read(a.dtype, a.dm, row * a.width + c0, n, dm);
        activate(a.kind, x, n, y, slope);
        if (gated(a.kind)) {
            read(a.dtype, a.g, row * wide + a.width + c0, n, up);
            for (int64_t c = 0; c < n; ++c) y[c] *= dm[c];
            write(a.dtype, a.dg, row * wide + a.width + c0, n, y);
            for (int64_t c = 0; c < n; ++c) dm[c] *= up[c];
        }
        for (int64_t c = 0; c < n; ++c) slope[c] *= dm[c];
        write(a.dtype, a.dg, row * wide + c0, n, slope);
    });
}

}  // namespace mdlm::cpu

// SPDX-License-Identifier: Apache-2.0
// Element by element.
//   bias_dropout_add: y = residual + f (x + bias),  dx = f dy;  f = dropout's factor (Srivastava et al., JMLR 15, 2014)
//   gelu(x) = x P(x), P(x) = (1 + erf(x / sqrt 2)) / 2 = erfc(-x / sqrt 2) / 2;  gelu' = P(x) + x exp(-x^2 / 2) /
//   sqrt(2 pi) gelu_tanh(x) = x S, S = (1 + tanh u) / 2 = 1 / (1 + exp(-2 u)), u = sqrt(2 / pi) (x + 0.044715 x^3);
//   derivative S + 2 x S (1 - S) u'
//     (Hendrycks, Gimpel, "Gaussian error linear units", arXiv 1606.08415); 1 + erf and 1 + tanh would cancel for
//     negative x
//   squared_relu(x) = max(x, 0)^2;  derivative 2 max(x, 0)  (So et al., "Primer", arXiv 2109.08668)
//   silu(x) = x S(x), S(x) = 1 / (1 + exp(-x));  derivative S (1 + x (1 - S))
//   swiglu = silu(gate) up,  geglu = gelu_tanh(gate) up  (Shazeer, "GLU variants improve transformer", arXiv
//   2002.05202)
//     dgate = dm act'(gate) up,  dup = dm act(gate)
#include <cmath>
#include <cstring>
#include <numbers>

#include "device/reference/common.hpp"
#include "device/reference/families.hpp"

namespace mdlm::reference {
namespace {

struct ValueAndSlope {
    double value, slope;
};

ValueAndSlope gelu(double x) {
    const double p = 0.5 * std::erfc(-x / std::numbers::sqrt2);
    const double density = std::exp(-0.5 * x * x) * std::numbers::inv_sqrtpi / std::numbers::sqrt2;
    return {x * p, p + x * density};
}
ValueAndSlope gelu_tanh(double x) {
    const double root = std::numbers::sqrt2 * std::numbers::inv_sqrtpi;
    const double u = root * (x + 0.044715 * x * x * x), du = root * (1.0 + 3.0 * 0.044715 * x * x);
    const double s = 1.0 / (1.0 + std::exp(-2.0 * u));
    return {x * s, s + 2.0 * x * s * (1.0 - s) * du};
}
ValueAndSlope squared_relu(double x) {
    const double r = x < 0.0 ? 0.0 : x;  // a NaN stays one
    return {r * r, 2.0 * r};
}
ValueAndSlope silu(double x) {
    const double s = 1.0 / (1.0 + std::exp(-x));
    return {x * s, s * (1.0 + x * (1.0 - s))};
}

bool gated(mdlm_activation kind) { return kind == MDLM_ACT_SWIGLU || kind == MDLM_ACT_GEGLU; }

ValueAndSlope apply(mdlm_activation kind, double x) {
    // The formulas' limits, which all of them have reached; they give infinity times 0 there.
    if (kind != MDLM_ACT_SQUARED_RELU && std::fabs(x) > 1000.0)
        return x > 0.0 ? ValueAndSlope{x, 1.0} : ValueAndSlope{0.0, 0.0};
    switch (kind) {
    case MDLM_ACT_GELU: return gelu(x);
    case MDLM_ACT_GELU_TANH:
    case MDLM_ACT_GEGLU: return gelu_tanh(x);
    case MDLM_ACT_SQUARED_RELU: return squared_relu(x);
    case MDLM_ACT_SWIGLU: return silu(x);
    default: fail(MDLM_ERROR_INTERNAL, "activation: expected 0 to 4, got %d", int(kind));
    }
}

}  // namespace

void bias_dropout_add(const BiasDropoutAdd &a) {
    with_type(a.dtype, [&]<class T>() {
        for (int64_t r = 0; r < a.tokens.rows(); ++r) {
            for (int64_t c = 0; c < a.width; ++c) {
                const double factor = a.dropout.factor(uint64_t(a.tokens.logical(r) * a.width + c));
                const double x = get<T>(a.x, r * a.width + c) + (a.bias != nullptr ? get<T>(a.bias, c) : 0.0);
                put<T>(a.y, r * a.width + c, get<T>(a.residual, r * a.width + c) + factor * x);
            }
        }
    });
}

void dropout_backward(const DropoutBackward &a) {
    with_type(a.dtype, [&]<class T>() {
        for (int64_t r = 0; r < a.tokens.rows(); ++r) {
            for (int64_t c = 0; c < a.width; ++c) {
                const double factor = a.dropout.factor(uint64_t(a.tokens.logical(r) * a.width + c));
                put<T>(a.dx, r * a.width + c, factor * get<T>(a.dy, r * a.width + c));
            }
        }
    });
}

void transpose_pieces(const TransposePieces &a) {
    for (int64_t row = 0; row < a.rows; ++row)
        for (int64_t column = 0; column < a.columns; ++column)
            std::memcpy(static_cast<char *>(a.to) + (column * a.rows + row) * a.bytes,
                        static_cast<const char *>(a.from) + (row * a.columns + column) * a.bytes,
                        static_cast<size_t>(a.bytes));
}

void activation_forward(const ActivationForward &a) {
    with_type(a.dtype, [&]<class T>() {
        const int64_t parts = gated(a.kind) ? 2 : 1;
        for (int64_t r = 0; r < a.rows; ++r) {
            for (int64_t c = 0; c < a.width; ++c) {
                const int64_t gate = r * parts * a.width + c;
                const double act = apply(a.kind, get<T>(a.g, gate)).value;
                put<T>(a.m, r * a.width + c, parts == 2 ? act * get<T>(a.g, gate + a.width) : act);
            }
        }
    });
}

void activation_backward(const ActivationBackward &a) {
    with_type(a.dtype, [&]<class T>() {
        const int64_t parts = gated(a.kind) ? 2 : 1;
        for (int64_t r = 0; r < a.rows; ++r) {
            for (int64_t c = 0; c < a.width; ++c) {
                const int64_t gate = r * parts * a.width + c;
                const ValueAndSlope act = apply(a.kind, get<T>(a.g, gate));
                const double dm = get<T>(a.dm, r * a.width + c), up = parts == 2 ? get<T>(a.g, gate + a.width) : 1.0;
                put<T>(a.dg, gate, dm * act.slope * up);
                if (parts == 2) put<T>(a.dg, gate + a.width, dm * act.value);
            }
        }
    });
}

}  // namespace mdlm::reference

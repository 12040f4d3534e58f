// SPDX-License-Identifier: Apache-2.0
// The activation functions and their slopes, one vector at a time. Included like vector-inl.hpp.
#include "device/cpu/vector-inl.hpp"

#if defined(MDLM_CPU_ACTIVATION_INL) == defined(HWY_TARGET_TOGGLE)
#ifdef MDLM_CPU_ACTIVATION_INL
#undef MDLM_CPU_ACTIVATION_INL
#else
#define MDLM_CPU_ACTIVATION_INL
#endif

HWY_BEFORE_NAMESPACE();
namespace mdlm::cpu::HWY_NAMESPACE {

// erfc(z), z >= 0, as t e^(-z^2 + p(t)) with t = 1 / (1 + z / 2). p is the least-squares fit on Chebyshev nodes of (0,
// 1]; it is off by 1e-7 at most, so the result is right to that part of itself for every z.
HWY_INLINE V erfc_of(V z) {
    const V t = hn::Div(broadcast(1.0f), hn::MulAdd(z, broadcast(0.5f), broadcast(1.0f)));
    V p = hn::MulAdd(broadcast(0.17087718f), t, broadcast(-0.822173054f));
    p = hn::MulAdd(p, t, broadcast(1.4885573f));
    p = hn::MulAdd(p, t, broadcast(-1.13524897f));
    p = hn::MulAdd(p, t, broadcast(0.278897046f));
    p = hn::MulAdd(p, t, broadcast(-0.186299294f));
    p = hn::MulAdd(p, t, broadcast(0.0967867332f));
    p = hn::MulAdd(p, t, broadcast(0.374091651f));
    p = hn::MulAdd(p, t, broadcast(1.0000237f));
    p = hn::MulAdd(p, t, broadcast(-1.26551223f));
    return hn::Mul(t, exp_of(hn::NegMulAdd(z, z, p)));
}

// act(x), and with a slope its derivative; of squared ReLU half of it, which is no larger than x.
struct Acted {
    V y, slope;
};
template <mdlm_activation kind>
inline constexpr bool half_slope = kind == MDLM_ACT_SQUARED_RELU;

// Every activation but squared ReLU is x gate(x):
//   gelu          gate = cdf(x) = erfc(-x / sqrt 2) / 2; its slope is the normal density
//   swiglu        gate = sigmoid(x)
//   the tanh form gate = (1 + tanh u) / 2 = sigmoid(2 u), u = sqrt(2 / pi) (x + 0.044715 x^3): no cancellation for
//   negative x
// Past `far` on either side the limits stand: 0, or x, with slopes 0 and 1. What the formulas give there, where e^x
// leaves its range or squares do, is not taken.
template <mdlm_activation kind, bool sloped>
HWY_INLINE Acted act(V x) {
    const V zero = hn::Zero(Floats()), one = broadcast(1.0f);
    if constexpr (kind == MDLM_ACT_SQUARED_RELU) {
        const V positive = hn::IfThenZeroElse(hn::Lt(x, zero), x);  // not Max, which would make 0 of a NaN
        return {hn::Mul(positive, positive), positive};
    } else {
        constexpr float far = kind == MDLM_ACT_GELU ? 13.0f : kind == MDLM_ACT_SWIGLU ? 87.0f : 10.0f;
        V y, slope = zero;
        if constexpr (kind == MDLM_ACT_GELU) {
            // sqrt(1/2), 1 / sqrt(2 pi).
            constexpr float root_half = 0.70710678118654752f, root_2_pi = 0.39894228040143268f;
            const V half = hn::Mul(broadcast(0.5f), erfc_of(hn::Mul(hn::Abs(x), broadcast(root_half))));
            const V gate = hn::IfThenElse(hn::Lt(x, zero), half, hn::Sub(one, half));
            y = hn::Mul(x, gate);
            if constexpr (sloped) {
                const V density = hn::Mul(exp_of(hn::Mul(hn::Mul(x, x), broadcast(-0.5f))), broadcast(root_2_pi));
                slope = hn::MulAdd(x, density, gate);
            }
        } else {
            constexpr float two_root_2_pi = 1.59576912160573071f, cubic = 0.044715f;  // 2 sqrt(2 / pi)
            V u = x, du = one;
            if constexpr (kind != MDLM_ACT_SWIGLU) {
                const V square = hn::Mul(x, x);
                u = hn::Mul(x, hn::MulAdd(square, broadcast(two_root_2_pi * cubic), broadcast(two_root_2_pi)));
                du = hn::MulAdd(square, broadcast(3.0f * two_root_2_pi * cubic), broadcast(two_root_2_pi));
            }
            const V gate = hn::Div(one, hn::Add(one, exp_of(hn::Neg(u))));
            y = hn::Mul(x, gate);
            if constexpr (sloped) slope = hn::MulAdd(hn::Mul(y, hn::Sub(one, gate)), du, gate);
        }
        const auto low = hn::Lt(x, broadcast(-far));
        y = hn::IfThenZeroElse(low, y);
        if constexpr (sloped) slope = hn::IfThenZeroElse(low, hn::IfThenElse(hn::Gt(x, broadcast(far)), one, slope));
        return {y, slope};
    }
}

}  // namespace mdlm::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();
#endif

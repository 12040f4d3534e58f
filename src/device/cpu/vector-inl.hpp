// SPDX-License-Identifier: Apache-2.0
// What the kernels do with one vector of floats. Included by files that Highway compiles for several targets, once for
// each.
#include <cstring>

#include "hwy/cache_control.h"
#include "hwy/highway.h"

#include "base/dtype.hpp"

#if defined(MDLM_CPU_VECTOR_INL) == defined(HWY_TARGET_TOGGLE)
#ifdef MDLM_CPU_VECTOR_INL
#undef MDLM_CPU_VECTOR_INL
#else
#define MDLM_CPU_VECTOR_INL
#endif

HWY_BEFORE_NAMESPACE();
namespace mdlm::cpu::HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

using Floats = hn::ScalableTag<float>;
using Bits = hn::RebindToUnsigned<Floats>;
using Halves = hn::Rebind<uint16_t, Floats>;
using V = hn::Vec<Floats>;
constexpr int64_t lanes = HWY_LANES(float);

HWY_INLINE V broadcast(float x) { return hn::Set(Floats(), x); }
HWY_INLINE V load(const float *from) { return hn::LoadU(Floats(), from); }
HWY_INLINE void store(V v, float *to) { hn::StoreU(v, Floats(), to); }
HWY_INLINE V load(const bf16 *from) {
    return hn::BitCast(Floats(), hn::ShiftLeft<16>(hn::PromoteTo(
                                     Bits(), hn::LoadU(Halves(), reinterpret_cast<const uint16_t *>(from)))));
}
// Rounds to nearest even; a NaN stays one.
HWY_INLINE void store(V v, bf16 *to) {
    const Bits bits;
    const auto u = hn::BitCast(bits, v);
    const auto rounded = hn::Add(u, hn::Add(hn::Set(bits, 0x7fffu), hn::And(hn::ShiftRight<16>(u), hn::Set(bits, 1u))));
    const auto quiet = hn::Or(u, hn::Set(bits, 0x400000u));
    const auto chosen = hn::IfThenElse(hn::RebindMask(bits, hn::IsNaN(v)), quiet, rounded);
    // Within the range of the narrowing, which saturates.
    hn::StoreU(hn::DemoteTo(Halves(), hn::BitCast(hn::RebindToSigned<Bits>(), hn::ShiftRight<16>(chosen))), Halves(),
               reinterpret_cast<uint16_t *>(to));
}

// n elements, at most one vector. Where n is not known to be a whole vector, the rest is read as 0 and not written.
template <class T>
HWY_INLINE V load(const T *from, int64_t n) {
    if (n == lanes) return load(from);
    T part[lanes] = {};
    std::memcpy(part, from, static_cast<size_t>(n) * sizeof(T));
    return load(part);
}
template <class T>
HWY_INLINE void store(V v, T *to, int64_t n) {
    if (n == lanes) return store(v, to);
    T part[lanes];
    store(v, part);
    std::memcpy(to, part, static_cast<size_t>(n) * sizeof(T));
}

// body(i, count): all of [0, n) in vectors, the last one maybe shorter. count is a constant but in the last.
template <class Body>
HWY_INLINE void vectors(int64_t n, const Body &body) {
    int64_t i = 0;
    for (; i + lanes <= n; i += lanes) body(i, lanes);
    if (i < n) body(i, n - i);
}

// e^x to 2 units in the last place. Below -87.336 (2^-126) it is 0, above 88.376 (2^127.5) infinity. Reduction by ln 2
// in two parts, then the series of e^r for |r| <= ln(2) / 2. A NaN stays one: comparisons decide, since Max and Min
// drop it on some instruction sets.
HWY_INLINE V exp_of(V x) {
    const Floats d;
    const Bits bits;
    const V shift = broadcast(12582912.0f);  // 1.5 * 2^23: adding it rounds to an integer
    const V t = hn::MulAdd(x, broadcast(1.44269504088896341f), shift), n = hn::Sub(t, shift);
    const V r = hn::MulAdd(n, broadcast(2.12194440054690583e-4f), hn::NegMulAdd(n, broadcast(0.693359375f), x));
    V p = hn::MulAdd(r, broadcast(1.0f / 5040.0f), broadcast(1.0f / 720.0f));
    p = hn::MulAdd(p, r, broadcast(1.0f / 120.0f));
    p = hn::MulAdd(p, r, broadcast(1.0f / 24.0f));
    p = hn::MulAdd(p, r, broadcast(1.0f / 6.0f));
    p = hn::MulAdd(p, r, broadcast(0.5f));
    p = hn::MulAdd(p, r, broadcast(1.0f));
    p = hn::MulAdd(p, r, broadcast(1.0f));
    const auto power =
        hn::ShiftLeft<23>(hn::Add(hn::Sub(hn::BitCast(bits, t), hn::BitCast(bits, shift)), hn::Set(bits, 127u)));
    const V e = hn::IfThenElse(hn::Lt(broadcast(88.376f), x), hn::Inf(d), hn::Mul(p, hn::BitCast(d, power)));
    return hn::IfThenZeroElse(hn::Lt(x, broadcast(-87.336f)), e);
}

// 2^x to 1 unit in the last place, for x below 127; exact where x is whole. Below -126 it is 0; a NaN stays one. The
// polynomial has the least largest relative error on [-1/2, 1/2] of those with constant term 1, by Lawson's iteration.
HWY_INLINE V exp2_of(V x) {
    const Floats d;
    const Bits bits;
    // 1.5 * 2^23: adding it rounds to an integer, which the lowest bits then hold.
    const V shift = broadcast(12582912.0f);
    const V t = hn::Add(x, shift), r = hn::Sub(x, hn::Sub(t, shift));
    V p = hn::MulAdd(r, broadcast(0.00015353362f), broadcast(0.00133988739f));
    p = hn::MulAdd(p, r, broadcast(0.00961843692f));
    p = hn::MulAdd(p, r, broadcast(0.0555033237f));
    p = hn::MulAdd(p, r, broadcast(0.240226477f));
    p = hn::MulAdd(p, r, broadcast(0.693147182f));
    p = hn::MulAdd(p, r, broadcast(1.0f));
    const auto power = hn::Add(hn::ShiftLeft<23>(hn::BitCast(bits, t)), hn::BitCast(bits, broadcast(1.0f)));
    return hn::IfThenZeroElse(hn::Lt(x, broadcast(-126.0f)), hn::Mul(p, hn::BitCast(d, power)));
}

// to[p * to_row + r] = from[r * from_row + p] for 4 rows r and p < k.
template <class T>
HWY_INLINE void transpose_four(const T *from, int64_t from_row, int64_t k, float *to, int64_t to_row) {
    const T *r0 = from, *r1 = r0 + from_row, *r2 = r1 + from_row, *r3 = r2 + from_row;
    HWY_ALIGN float part[4 * lanes];
    int64_t p = 0;
    for (; p + lanes <= k; p += lanes) {
        hn::StoreInterleaved4(load(r0 + p), load(r1 + p), load(r2 + p), load(r3 + p), Floats(), part);
        for (int64_t q = 0; q < lanes; ++q) std::memcpy(to + (p + q) * to_row, part + 4 * q, 4 * sizeof(float));
    }
    for (; p < k; ++p) {
        float *at = to + p * to_row;
        at[0] = r0[p], at[1] = r1[p], at[2] = r2[p], at[3] = r3[p];
    }
}

HWY_INLINE float sum_of(V v) { return hn::GetLane(hn::SumOfLanes(Floats(), v)); }
HWY_INLINE float max_of(V v) { return hn::GetLane(hn::MaxOfLanes(Floats(), v)); }

}  // namespace mdlm::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();
#endif

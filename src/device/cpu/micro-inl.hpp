// SPDX-License-Identifier: Apache-2.0
// The inner loop of every matrix product that the CPU device does itself. Included like vector-inl.hpp.
#include "device/cpu/vector-inl.hpp"

#if defined(MDLM_CPU_MICRO_INL) == defined(HWY_TARGET_TOGGLE)
#ifdef MDLM_CPU_MICRO_INL
#undef MDLM_CPU_MICRO_INL
#else
#define MDLM_CPU_MICRO_INL
#endif

HWY_BEFORE_NAMESPACE();
namespace mdlm::cpu::HWY_NAMESPACE {

// 6 rows by 2 vectors: 12 accumulators, 2 vectors of b and 1 of a fit 16 registers, and 12 chains hide the latency of
// two units that multiply and add.
constexpr int64_t micro_m = 6, micro_n = 2 * lanes;

struct Row {
    V l, h;
};
HWY_INLINE void step(V a, V l, V h, Row &to) {
    to.l = hn::MulAdd(a, l, to.l);
    to.h = hn::MulAdd(a, h, to.h);
}
// What a sum starts from: c itself, a bias that all rows share, or nothing.
enum class Start { zero, c, bias };
template <Start start>
HWY_INLINE void finish(Row sum, const float *bias, float *c) {
    if constexpr (start != Start::zero) {
        const float *from = start == Start::c ? c : bias;
        sum.l = hn::Add(load(from), sum.l);
        sum.h = hn::Add(load(from + lanes), sum.h);
    }
    store(sum.l, c);
    store(sum.h, c + lanes);
}

// c[micro_m, micro_n] = start + a b, a(i, p) = a[i * a_i + p * a_p], b(p, j) = b[p * b_p + j]. Each element is summed
// over p in order.
template <Start start>
HWY_INLINE void micro(int64_t k, const float *HWY_RESTRICT a, int64_t a_i, int64_t a_p, const float *HWY_RESTRICT b,
                      int64_t b_p, const float *bias, float *c, int64_t c_row) {
    const V zero = hn::Zero(Floats());
    Row r0{zero, zero}, r1 = r0, r2 = r0, r3 = r0, r4 = r0, r5 = r0;
    for (int64_t i = 0; i < micro_m; ++i) hwy::Prefetch(c + i * c_row);
    const float *a0 = a, *a1 = a0 + a_i, *a2 = a1 + a_i, *a3 = a2 + a_i, *a4 = a3 + a_i, *a5 = a4 + a_i;
#pragma GCC unroll 4
    for (int64_t p = 0; p < k; ++p) {
        const V l = load(b + p * b_p), h = load(b + p * b_p + lanes);
        step(broadcast(a0[p * a_p]), l, h, r0);
        step(broadcast(a1[p * a_p]), l, h, r1);
        step(broadcast(a2[p * a_p]), l, h, r2);
        step(broadcast(a3[p * a_p]), l, h, r3);
        step(broadcast(a4[p * a_p]), l, h, r4);
        step(broadcast(a5[p * a_p]), l, h, r5);
    }
    finish<start>(r0, bias, c);
    finish<start>(r1, bias, c + c_row);
    finish<start>(r2, bias, c + 2 * c_row);
    finish<start>(r3, bias, c + 3 * c_row);
    finish<start>(r4, bias, c + 4 * c_row);
    finish<start>(r5, bias, c + 5 * c_row);
}

}  // namespace mdlm::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();
#endif

// SPDX-License-Identifier: Apache-2.0
#include "device/cpu/targets.hpp"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "device/cpu/spans.cpp"
#include "hwy/foreach_target.h"

#include <algorithm>

#include "device/cpu/spans.hpp"
#include "device/cpu/vector-inl.hpp"

HWY_BEFORE_NAMESPACE();
namespace mdlm::cpu::HWY_NAMESPACE {

void exps(float *x, int64_t n) {
    vectors(n, [&](int64_t i, int64_t count) HWY_ATTR { store(exp_of(load(x + i, count)), x + i, count); });
}

float sum(const float *x, int64_t n) {
    V total = hn::Zero(Floats());
    vectors(n, [&](int64_t i, int64_t count) HWY_ATTR { total = hn::Add(total, load(x + i, count)); });
    return sum_of(total);
}
float dot(const float *x, const float *y, int64_t n) {
    V total = hn::Zero(Floats());
    vectors(n, [&](int64_t i, int64_t count)
                   HWY_ATTR { total = hn::MulAdd(load(x + i, count), load(y + i, count), total); });
    return sum_of(total);
}

void read_bf16(const bf16 *from, int64_t n, float *out) {
    vectors(n, [&](int64_t i, int64_t count) HWY_ATTR { store(load(from + i, count), out + i, count); });
}

void write_bf16(const float *in, int64_t n, bf16 *to) {
    vectors(n, [&](int64_t i, int64_t count) HWY_ATTR { store(load(in + i, count), to + i, count); });
}

// High and low words of x * m in every lane.
template <class D, class U>
HWY_INLINE void wide_product(D d, U x, U m, U &high, U &low) {
    const hn::RepartitionToWide<D> wide;
    const auto even = hn::MulEven(x, m);
    const auto odd = hn::MulEven(hn::BitCast(d, hn::ShiftRight<32>(hn::BitCast(wide, x))), m);
    low = hn::OddEven(hn::BitCast(d, hn::ShiftLeft<32>(odd)), hn::BitCast(d, even));
    high = hn::OddEven(hn::BitCast(d, odd), hn::BitCast(d, hn::ShiftRight<32>(even)));
}

// Factors of 4 * lanes elements whose counters start at `first` and do not run over 32 bits. The rounds of
// base/philox.hpp.
HWY_INLINE void draw_block(const Dropout &dropout, uint64_t first, float *factors) {
#if HWY_TARGET == HWY_SCALAR
    const auto words = dropout.four(first);
    for (int w = 0; w < 4; ++w) factors[w] = words[w] >= dropout.threshold ? dropout.scale : 0.0f;
#else
    const Bits d;
    using U = hn::Vec<Bits>;
    U c0 = hn::Add(hn::Set(d, uint32_t(first)), hn::Iota(d, 0u)), c1 = hn::Set(d, uint32_t(first >> 32)),
      c2 = hn::Set(d, dropout.draw->step), c3 = hn::Set(d, dropout.last_word());
    auto k0 = static_cast<uint32_t>(dropout.draw->seed), k1 = static_cast<uint32_t>(dropout.draw->seed >> 32);
    const U m0 = hn::Set(d, 0xD2511F53u), m1 = hn::Set(d, 0xCD9E8D57u);
    for (int round = 0; round < 10; ++round) {
        U high0, low0, high1, low1;
        wide_product(d, c0, m0, high0, low0);
        wide_product(d, c2, m1, high1, low1);
        c0 = hn::Xor(hn::Xor(high1, c1), hn::Set(d, k0));
        c1 = low1;
        c2 = hn::Xor(hn::Xor(high0, c3), hn::Set(d, k1));
        c3 = low0;
        k0 += 0x9E3779B9u;
        k1 += 0xBB67AE85u;
    }
    const U threshold = hn::Set(d, dropout.threshold);
    const V scale = broadcast(dropout.scale);
    const auto factor = [&](U word) HWY_ATTR {
        return hn::IfThenZeroElse(hn::RebindMask(Floats(), hn::Gt(threshold, word)), scale);
    };
    hn::StoreInterleaved4(factor(c0), factor(c1), factor(c2), factor(c3), Floats(), factors);
#endif
}

void draw(const Dropout &dropout, uint64_t index, int64_t n, float *factors) {
    int64_t i = 0;
    const auto some = [&](int64_t end) {
        while (i < end) {
            const uint64_t first = index + static_cast<uint64_t>(i);
            const auto words = dropout.four(first / 4);
            for (uint64_t w = first % 4; w < 4 && i < end; ++w, ++i)
                factors[i] = words[w] >= dropout.threshold ? dropout.scale : 0.0f;
        }
    };
    some(std::min(n, static_cast<int64_t>((4 - index % 4) % 4)));
    for (; i + 4 * lanes <= n; i += 4 * lanes) {
        const uint64_t first = (index + static_cast<uint64_t>(i)) / 4;
        if ((first & 0xffffffffu) > 0xffffffffu - static_cast<uint64_t>(lanes)) break;
        draw_block(dropout, first, factors + i);
    }
    some(n);
}

}  // namespace mdlm::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace mdlm::cpu {
namespace {
HWY_EXPORT(exps);
HWY_EXPORT(sum);
HWY_EXPORT(dot);
HWY_EXPORT(read_bf16);
HWY_EXPORT(write_bf16);
HWY_EXPORT(draw);
}  // namespace

void exps(float *x, int64_t n) { HWY_DYNAMIC_DISPATCH(exps)(x, n); }

float sum(const float *x, int64_t n) { return HWY_DYNAMIC_DISPATCH(sum)(x, n); }
float dot(const float *x, const float *y, int64_t n) { return HWY_DYNAMIC_DISPATCH(dot)(x, y, n); }

void read(DType type, const void *base, int64_t at, int64_t n, float *out) {
    if (type == DType::f32)
        std::memcpy(out, static_cast<const float *>(base) + at, static_cast<size_t>(n) * sizeof(float));
    else HWY_DYNAMIC_DISPATCH(read_bf16)(static_cast<const bf16 *>(base) + at, n, out);
}

void write(DType type, void *base, int64_t at, int64_t n, const float *in) {
    if (type == DType::f32) std::memcpy(static_cast<float *>(base) + at, in, static_cast<size_t>(n) * sizeof(float));
    else HWY_DYNAMIC_DISPATCH(write_bf16)(in, n, static_cast<bf16 *>(base) + at);
}

void draw(const Dropout &dropout, uint64_t index, int64_t n, float *factors) {
    if (!dropout.on) std::fill_n(factors, n, 1.0f);
    else HWY_DYNAMIC_DISPATCH(draw)(dropout, index, n, factors);
}

}  // namespace mdlm::cpu
#endif

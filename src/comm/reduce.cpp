// SPDX-License-Identifier: Apache-2.0
#include "comm/reduce.hpp"

#include <algorithm>
#include <type_traits>

#include "base/status.hpp"

namespace mdlm {
namespace {

constexpr int64_t chunk = 1024;  // accumulators stay in the first cache

template <class T>
struct Element {
    using Wide = std::conditional_t<std::is_same_v<T, double>, double, float>;
    static Wide widen(T v) { return static_cast<Wide>(v); }
    static T narrow(Wide v) { return T(v); }
};
template <>
struct Element<f16> {
    using Wide = float;
    static Wide widen(f16 v) { return static_cast<float>(static_cast<double>(v)); }
    static f16 narrow(Wide v) { return f16(static_cast<double>(v)); }
};

template <class T, mdlm_reduce_op op>
void reduce(const T *const *from, int32_t ranks, int64_t count, T *to) {
    using E = Element<T>;
    using W = typename E::Wide;
    W sums[chunk];
    for (int64_t begin = 0; begin < count; begin += chunk) {
        const int64_t n = std::min(chunk, count - begin);
        for (int64_t i = 0; i < n; ++i) sums[i] = E::widen(from[0][begin + i]);
        for (int32_t r = 1; r < ranks; ++r) {
            const T *part = from[r] + begin;
            for (int64_t i = 0; i < n; ++i) {
                const W v = E::widen(part[i]);
                if constexpr (op == MDLM_REDUCE_SUM) sums[i] += v;
                else sums[i] = v > sums[i] || v != v ? v : sums[i];  // a NaN of any rank stays
            }
        }
        for (int64_t i = 0; i < n; ++i) to[begin + i] = E::narrow(sums[i]);
    }
}

template <class T>
void reduce(mdlm_reduce_op op, const void *const *from, int32_t ranks, int64_t count, void *to) {
    const auto parts = reinterpret_cast<const T *const *>(from);
    if (op == MDLM_REDUCE_SUM) reduce<T, MDLM_REDUCE_SUM>(parts, ranks, count, static_cast<T *>(to));
    else reduce<T, MDLM_REDUCE_MAX>(parts, ranks, count, static_cast<T *>(to));
}

}  // namespace

void reduce_ranks(DType dtype, mdlm_reduce_op op, const void *const *from, int32_t ranks, int64_t count, void *to) {
    switch (dtype) {
    case DType::f32: return reduce<float>(op, from, ranks, count, to);
    case DType::bf16: return reduce<bf16>(op, from, ranks, count, to);
    case DType::f16: return reduce<f16>(op, from, ranks, count, to);
    case DType::f64: return reduce<double>(op, from, ranks, count, to);
    case DType::i32: break;
    }
    fail(MDLM_ERROR_INTERNAL, "a sum over ranks of %s: expected floating point", name_of(dtype));
}

}  // namespace mdlm

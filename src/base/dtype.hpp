// SPDX-License-Identifier: Apache-2.0
// Element types, and conversions that round to nearest even.
#pragma once
#include <bit>
#include <cmath>
#include <cstdint>

#include "mdlm/mdlm.h"

namespace mdlm {

// i32 has no number in the ABI: what is given beside x may be whole numbers (labels, positions).
enum class DType : int32_t {
    f32 = MDLM_DTYPE_F32,
    bf16 = MDLM_DTYPE_BF16,
    f16 = MDLM_DTYPE_F16,
    f64 = MDLM_DTYPE_F64,
    i32 = 1000
};

constexpr int64_t size_of(DType t) { return t == DType::f64 ? 8 : t == DType::f32 || t == DType::i32 ? 4 : 2; }
constexpr const char *name_of(DType t) {
    return t == DType::f64    ? "f64"
           : t == DType::f32  ? "f32"
           : t == DType::bf16 ? "bf16"
           : t == DType::f16  ? "f16"
                              : "i32";
}
// Statistics, accumulators of reductions that are stored, and parameter gradients: float32, or float64 for float64.
constexpr DType wide(DType t) { return t == DType::f64 ? DType::f64 : DType::f32; }

struct bf16 {
    uint16_t bits;
    bf16() = default;
    explicit bf16(float v) {
        const uint32_t u = std::bit_cast<uint32_t>(v);
        bits = (u & 0x7fffffffu) > 0x7f800000u ? uint16_t((u >> 16) | 0x40u)
                                               : uint16_t((u + 0x7fffu + ((u >> 16) & 1u)) >> 16);
    }
    // Through an odd-rounded float, so that the two roundings give the same as one.
    explicit bf16(double v) : bf16(round_to_odd(v)) {}
    operator float() const { return std::bit_cast<float>(uint32_t(bits) << 16); }

    static float round_to_odd(double v) {
        const float f = static_cast<float>(v);
        const double back = f;
        if (back == v || std::isnan(v) || std::isinf(f)) return f;
        uint32_t u = std::bit_cast<uint32_t>(f);
        if ((u & 1u) != 0) return f;
        const bool away = std::fabs(back) > std::fabs(v);  // rounded up in magnitude: the odd neighbour is below
        return std::bit_cast<float>(away ? u - 1 : u + 1);
    }
};

struct f16 {
    uint16_t bits;
    f16() = default;
    explicit f16(double v);
    explicit operator double() const;
};

// One element, by a dtype known at run time, at any address. For cold paths (parameter reads and writes, tests).
double load(DType type, const void *from, int64_t index);
void store(DType type, void *to, int64_t index, double value);

}  // namespace mdlm

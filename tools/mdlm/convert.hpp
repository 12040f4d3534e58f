// SPDX-License-Identifier: Apache-2.0
// Between the doubles of a golden case and the bytes that a block takes.
#pragma once
#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdint>
#include <cstring>

#include "../text.hpp"
#include "mdlm/mdlm.h"

namespace mdlm::tools {

inline const char *dtype_name(mdlm_dtype type) {
    switch (type) {
    case MDLM_DTYPE_F64: return "f64";
    case MDLM_DTYPE_F32: return "f32";
    case MDLM_DTYPE_BF16: return "bf16";
    case MDLM_DTYPE_F16: return "f16";
    default: return "unknown dtype";
    }
}

inline size_t dtype_size(mdlm_dtype type) {
    switch (type) {
    case MDLM_DTYPE_F64: return 8;
    case MDLM_DTYPE_F32: return 4;
    case MDLM_DTYPE_BF16: return 2;
    default: bad("expected a block of f32, bf16 or f64, seen %s", dtype_name(type));
    }
}

// To nearest, ties to even, in one step: at the value's own exponent, seven bits of fraction are left.
inline double rounded_to_bf16(double value) {
    if (value == 0 || !std::isfinite(value)) return value;
    const int unit = std::max(std::ilogb(value), -126) - 7;
    return std::ldexp(std::nearbyint(std::ldexp(value, -unit)), unit);
}

inline void store(mdlm_dtype type, std::byte *to, double value) {
    if (type == MDLM_DTYPE_F64) {
        std::memcpy(to, &value, 8);
    } else if (type == MDLM_DTYPE_F32) {
        const auto narrow = static_cast<float>(value);
        std::memcpy(to, &narrow, 4);
    } else {
        const auto upper =
            static_cast<uint16_t>(std::bit_cast<uint32_t>(static_cast<float>(rounded_to_bf16(value))) >> 16);
        std::memcpy(to, &upper, 2);
    }
}

inline double load(mdlm_dtype type, const std::byte *from) {
    double value = 0;
    if (type == MDLM_DTYPE_F64) {
        std::memcpy(&value, from, 8);
    } else if (type == MDLM_DTYPE_F32) {
        float narrow = 0;
        std::memcpy(&narrow, from, 4);
        value = narrow;
    } else {
        uint16_t upper = 0;
        std::memcpy(&upper, from, 2);
        value = std::bit_cast<float>(uint32_t{upper} << 16);
    }
    return value;
}

}  // namespace mdlm::tools

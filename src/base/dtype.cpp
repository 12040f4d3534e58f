// SPDX-License-Identifier: Apache-2.0
#include "base/dtype.hpp"

#include <cstring>

namespace mdlm {

f16::f16(double v) {
    const uint16_t sign = std::signbit(v) ? 0x8000 : 0;
    const double a = std::fabs(v);
    if (std::isnan(v)) {
        bits = sign | 0x7e00;
    } else if (a >= 65520.0) {  // halfway between the largest number and the next power rounds to infinity
        bits = sign | 0x7c00;
    } else if (a == 0.0) {
        bits = sign;
    } else {
        int exponent = 0;
        std::frexp(a, &exponent);                                    // a = m 2^exponent, m in [1/2, 1)
        const int scale = exponent - 1 < -14 ? -24 : exponent - 11;  // unit in the last place, subnormals included
        const double units = std::nearbyint(std::ldexp(a, -scale));  // ties to even
        bits = exponent - 1 < -14 ? uint16_t(sign | uint16_t(units))
                                  : uint16_t(sign | uint16_t(((exponent - 1 + 15) << 10) + (int(units) - 1024)));
    }
}

f16::operator double() const {
    const int exponent = (bits >> 10) & 31, fraction = bits & 1023;
    double a = 0.0;
    if (exponent == 31) a = fraction != 0 ? NAN : INFINITY;
    else if (exponent == 0) a = std::ldexp(fraction, -24);
    else a = std::ldexp(1024 + fraction, exponent - 25);
    return (bits & 0x8000) != 0 ? -a : a;
}

namespace {

template <class T>
T element(const void *from, int64_t i) {
    T v;
    std::memcpy(&v, static_cast<const char *>(from) + i * int64_t{sizeof(T)}, sizeof(T));
    return v;
}

template <class T>
void element(void *to, int64_t i, T v) {
    std::memcpy(static_cast<char *>(to) + i * int64_t{sizeof(T)}, &v, sizeof(T));
}

}  // namespace

double load(DType type, const void *from, int64_t i) {
    switch (type) {
    case DType::f64: return element<double>(from, i);
    case DType::f32: return element<float>(from, i);
    case DType::bf16: return static_cast<float>(element<bf16>(from, i));
    case DType::f16: return static_cast<double>(element<f16>(from, i));
    case DType::i32: return element<int32_t>(from, i);
    }
    return NAN;
}

void store(DType type, void *to, int64_t i, double v) {
    switch (type) {
    case DType::f64: return element(to, i, v);
    case DType::f32: return element(to, i, static_cast<float>(v));
    case DType::bf16: return element(to, i, bf16(v));
    case DType::f16: return element(to, i, f16(v));
    case DType::i32: return element(to, i, static_cast<int32_t>(v));
    }
}

}  // namespace mdlm

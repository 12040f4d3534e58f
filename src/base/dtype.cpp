#include "base/dtype.hpp"

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
        std::frexp(a, &exponent);                                     // a = m 2^exponent, m in [1/2, 1)
        const int scale = exponent - 1 < -14 ? -24 : exponent - 11;   // unit in the last place, subnormals included
        const double units = std::nearbyint(std::ldexp(a, -scale));   // ties to even
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

double load(DType type, const void *from, int64_t i) {
    switch (type) {
    case DType::f64: return static_cast<const double *>(from)[i];
    case DType::f32: return static_cast<const float *>(from)[i];
    case DType::bf16: return static_cast<float>(static_cast<const bf16 *>(from)[i]);
    case DType::f16: return static_cast<double>(static_cast<const f16 *>(from)[i]);
    }
    return NAN;
}

void store(DType type, void *to, int64_t i, double v) {
    switch (type) {
    case DType::f64: static_cast<double *>(to)[i] = v; break;
    case DType::f32: static_cast<float *>(to)[i] = static_cast<float>(v); break;
    case DType::bf16: static_cast<bf16 *>(to)[i] = bf16(v); break;
    case DType::f16: static_cast<f16 *>(to)[i] = f16(v); break;
    }
}

}  // namespace mdlm

#include "device/cpu/spans.hpp"

#include <algorithm>
#include <cstring>

namespace mdlm::cpu {
namespace {

// Written as vectors, since compilers make branches of the limits in a scalar loop and then do not vectorise it.
using Four = float __attribute__((vector_size(16)));
using Words = uint32_t __attribute__((vector_size(16)));

// Reduction by ln 2 in two parts, then the series of e^r for |r| <= ln(2) / 2.
Four exp4(Four x) {
    const Four low = Four{} - 87.0f, high = Four{} + 88.0f, shift = Four{} + 12582912.0f;  // 1.5 * 2^23: adding it rounds to an integer
    x = x < low ? low : x;
    x = x > high ? high : x;
    const Four t = x * 1.44269504088896341f + shift, n = t - shift;
    const Four r = (x - n * 0.693359375f) + n * 2.12194440054690583e-4f;
    Four p = r * (1.0f / 5040.0f) + 1.0f / 720.0f;
    p = p * r + 1.0f / 120.0f;
    p = p * r + 1.0f / 24.0f;
    p = p * r + 1.0f / 6.0f;
    p = p * r + 0.5f;
    p = p * r + 1.0f;
    p = p * r + 1.0f;
    const Words power = (reinterpret_cast<Words>(t) - reinterpret_cast<Words>(shift) + 127u) << 23;
    return p * reinterpret_cast<Four>(power);
}

}  // namespace

void exps(float *x, int64_t n) {
    Four v;
    int64_t i = 0;
    for (; i + 4 <= n; i += 4) {
        std::memcpy(&v, x + i, sizeof v);
        v = exp4(v);
        std::memcpy(x + i, &v, sizeof v);
    }
    if (i == n) return;
    v = Four{};
    std::memcpy(&v, x + i, static_cast<size_t>(n - i) * sizeof(float));
    v = exp4(v);
    std::memcpy(x + i, &v, static_cast<size_t>(n - i) * sizeof(float));
}

void read(DType type, const void *base, int64_t at, int64_t n, float *out) {
    if (type == DType::f32) {
        std::memcpy(out, static_cast<const float *>(base) + at, static_cast<size_t>(n) * sizeof(float));
        return;
    }
    const bf16 *from = static_cast<const bf16 *>(base) + at;
    for (int64_t i = 0; i < n; ++i) out[i] = from[i];
}

void write(DType type, void *base, int64_t at, int64_t n, const float *in) {
    if (type == DType::f32) {
        std::memcpy(static_cast<float *>(base) + at, in, static_cast<size_t>(n) * sizeof(float));
        return;
    }
    bf16 *to = static_cast<bf16 *>(base) + at;
    for (int64_t i = 0; i < n; ++i) to[i] = bf16(in[i]);
}

float sum(const float *x, int64_t n) {
    float lanes[16] = {};
    int64_t i = 0;
    for (; i + 16 <= n; i += 16)
        for (int l = 0; l < 16; ++l) lanes[l] += x[i + l];
    for (int l = 0; i < n; ++i, ++l) lanes[l] += x[i];
    for (int half = 8; half > 0; half /= 2)
        for (int l = 0; l < half; ++l) lanes[l] += lanes[l + half];
    return lanes[0];
}

float dot(const float *x, const float *y, int64_t n) {
    float lanes[16] = {};
    int64_t i = 0;
    for (; i + 16 <= n; i += 16)
        for (int l = 0; l < 16; ++l) lanes[l] += x[i + l] * y[i + l];
    for (int l = 0; i < n; ++i, ++l) lanes[l] += x[i] * y[i];
    for (int half = 8; half > 0; half /= 2)
        for (int l = 0; l < half; ++l) lanes[l] += lanes[l + half];
    return lanes[0];
}

void draw(const Dropout &dropout, uint64_t index, int64_t n, float *factors) {
    if (!dropout.on) {
        std::fill_n(factors, n, 1.0f);
        return;
    }
    for (int64_t i = 0; i < n;) {
        const uint64_t first = index + static_cast<uint64_t>(i);
        const auto words = dropout.four(first / 4);
        for (uint64_t w = first % 4; w < 4 && i < n; ++w, ++i) factors[i] = words[w] >= dropout.threshold ? dropout.scale : 0.0f;
    }
}

}  // namespace mdlm::cpu

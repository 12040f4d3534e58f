// SPDX-License-Identifier: Apache-2.0
#include "device/cpu/moments.hpp"

#include <algorithm>

#include "device/cpu/spans.hpp"

namespace mdlm::cpu {
namespace {

// Calls body(first, count) for spans of n elements.
template <class Body>
void spans(int64_t n, Body &&body) {
    for (int64_t c = 0; c < n; c += max_span) body(c, std::min(max_span, n - c));
}

}  // namespace

Moments moments(DType type, const void *base, int64_t at, int64_t n, bool rms, double epsilon) {
    float x[max_span];
    double mean = 0.0, squares = 0.0;
    if (!rms)
        spans(n, [&](int64_t c, int64_t count) {
            read(type, base, at + c, count, x);
            for (int64_t j = 0; j < count; ++j) mean += static_cast<double>(x[j]);
        });
    mean /= static_cast<double>(n);
    spans(n, [&](int64_t c, int64_t count) {
        read(type, base, at + c, count, x);
        for (int64_t j = 0; j < count; ++j)
            squares += (static_cast<double>(x[j]) - mean) * (static_cast<double>(x[j]) - mean);
    });
    return {mean, 1.0 / std::sqrt(squares / static_cast<double>(n) + epsilon)};
}

void exact_norm_forward(const NormForward &a, int64_t row) {
    const int64_t at = row * a.width;
    const Moments m = moments(a.dtype, a.x, at, a.width, a.rms, a.epsilon);
    spans(a.width, [&](int64_t c, int64_t count) {
        float x[max_span], w[max_span], b[max_span] = {};
        read(a.dtype, a.x, at + c, count, x);
        read(a.dtype, a.weight, c, count, w);
        if (a.bias != nullptr) read(a.dtype, a.bias, c, count, b);
        for (int64_t j = 0; j < count; ++j) {
            const double weight = static_cast<double>(w[j]) + (a.zero_centered ? 1.0 : 0.0);
            x[j] =
                static_cast<float>((static_cast<double>(x[j]) - m.mean) * m.rstd * weight + static_cast<double>(b[j]));
        }
        write(a.dtype, a.y, at + c, count, x);
    });
    static_cast<float *>(a.rstd)[row] = static_cast<float>(m.rstd);
    if (a.mean != nullptr) static_cast<float *>(a.mean)[row] = static_cast<float>(m.mean);
}

void exact_norm_backward(const NormBackward &a, int64_t row, float *dweight, float *dbias) {
    const int64_t at = row * a.width;
    const Moments m = moments(a.dtype, a.x, at, a.width, a.rms, a.epsilon);
    float x[max_span], w[max_span], dy[max_span], add[max_span] = {};
    // Calls body(channel, dy, gradient of xhat, xhat, element of the span) for a span.
    const auto each = [&](int64_t c, int64_t count, auto &&body) {
        read(a.dtype, a.x, at + c, count, x);
        read(a.dtype, a.dy, at + c, count, dy);
        read(a.dtype, a.weight, c, count, w);
        for (int64_t j = 0; j < count; ++j) {
            const double d = static_cast<double>(dy[j]),
                         g = d * (static_cast<double>(w[j]) + (a.zero_centered ? 1.0 : 0.0));
            body(c + j, d, g, (static_cast<double>(x[j]) - m.mean) * m.rstd, j);
        }
    };
    double along_x = 0.0, along_1 = 0.0;
    spans(a.width, [&](int64_t c0, int64_t count) {
        each(c0, count, [&](int64_t c, double d, double g, double xhat, int64_t) {
            if (dweight != nullptr) dweight[c] = static_cast<float>(static_cast<double>(dweight[c]) + d * xhat);
            if (dbias != nullptr) dbias[c] += static_cast<float>(d);
            along_x += g * xhat;
            along_1 += g;
        });
    });
    if (a.dx == nullptr) return;
    const double mean_gx = along_x / static_cast<double>(a.width),
                 mean_g = a.rms ? 0.0 : along_1 / static_cast<double>(a.width);
    spans(a.width, [&](int64_t c0, int64_t count) {
        float dx[max_span];
        if (a.add != nullptr) read(a.dtype, a.add, at + c0, count, add);
        each(c0, count, [&](int64_t, double, double g, double xhat, int64_t j) {
            dx[j] = static_cast<float>(static_cast<double>(add[j]) + m.rstd * (g - mean_g - xhat * mean_gx));
        });
        write(a.dtype, a.dx, at + c0, count, dx);
    });
}

}  // namespace mdlm::cpu

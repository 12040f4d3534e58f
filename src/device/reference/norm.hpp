// SPDX-License-Identifier: Apache-2.0
// The norm of one row, for norm.cpp and for the norm of a head in rope.cpp.
//
//   LayerNorm (Ba, Kiros, Hinton, "Layer normalization", arXiv 1607.06450):
//     mean = sum x / n,  rstd = 1 / sqrt(sum (x - mean)^2 / n + epsilon),  x^ = (x - mean) rstd
//   RMSNorm (Zhang, Sennrich, "Root mean square layer normalization", arXiv 1910.07467):
//     the same with mean = 0
//   y = x^ gamma + bias,  gamma = weight, or 1 + weight when zero-centred
//   With g = dy gamma:
//     dx = rstd (g - mean(g) - x^ mean(g x^)), without mean(g) for RMSNorm;  dweight = sum dy x^;  dbias = sum dy
#pragma once
#include <cmath>

#include "device/reference/common.hpp"

namespace mdlm::reference {

struct Moments {
    double mean, rstd;
};
template <class T>
Moments moments(const T *x, int64_t n, bool rms, double epsilon) {
    const double mean = rms ? 0.0 : sum(n, [&](int64_t c) { return get<T>(x, c); }) / double(n);
    const double variance = sum(n,
                                [&](int64_t c) {
                                    const double v = get<T>(x, c) - mean;
                                    return v * v;
                                }) /
                            double(n);
    return {mean, 1.0 / std::sqrt(variance + epsilon)};
}
// For the backward: as stored, unless rounding took more from x^ than from any float: of a mean that is larger than the
// row's spread, or of an rstd past the range. Then formed again.
template <class T>
Moments stored_moments(const void *mean, const void *rstd, int64_t row, const T *x, int64_t n, double epsilon) {
    using W = Wide<T>;
    const W scale = static_cast<const W *>(rstd)[row];
    const Moments stored = {mean != nullptr ? get<W>(mean, row) : 0.0, double(scale)};
    const bool kept = std::isnormal(scale) && std::fabs(stored.mean) * stored.rstd <= 1.0;
    return kept ? stored : moments(x, n, mean == nullptr, epsilon);
}

template <class T>
double gamma(const void *weight, int64_t c, bool zero_centered) {
    return get<T>(weight, c) + (zero_centered ? 1.0 : 0.0);
}

// mean(g) and mean(g x^); g and x^ are given as functions of the channel.
struct GradientMeans {
    double g, gx;
};
template <class Gradient, class Normalized>
GradientMeans gradient_means(int64_t n, bool rms, Gradient &&g, Normalized &&hat) {
    return {rms ? 0.0 : sum(n, g) / double(n), sum(n, [&](int64_t c) { return g(c) * hat(c); }) / double(n)};
}

}  // namespace mdlm::reference

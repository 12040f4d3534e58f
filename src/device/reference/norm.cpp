// SPDX-License-Identifier: Apache-2.0
// LayerNorm and RMSNorm, row by row. Formulas: norm.hpp.
#include "device/reference/norm.hpp"

#include "device/reference/families.hpp"

namespace mdlm::reference {
namespace {

template <class T>
void forward(const NormForward &a) {
    using W = Wide<T>;
    for (int64_t r = 0; r < a.rows; ++r) {
        const T *x = static_cast<const T *>(a.x) + r * a.width;
        const Moments m = moments(x, a.width, a.rms, a.epsilon);
        put<W>(a.rstd, r, m.rstd);
        if (a.mean != nullptr) put<W>(a.mean, r, m.mean);
        for (int64_t c = 0; c < a.width; ++c) {
            const double hat = (get<T>(x, c) - m.mean) * m.rstd;
            put<T>(a.y, r * a.width + c,
                   hat * gamma<T>(a.weight, c, a.zero_centered) + (a.bias != nullptr ? get<T>(a.bias, c) : 0.0));
        }
    }
}

template <class T>
void backward(const NormBackward &a) {
    using W = Wide<T>;
    const auto moments_of = [&](int64_t r) {
        return stored_moments(a.mean, a.rstd, r, static_cast<const T *>(a.x) + r * a.width, a.width, a.epsilon);
    };
    const auto hat = [&](int64_t r, int64_t c) {
        const Moments m = moments_of(r);
        return (get<T>(a.x, r * a.width + c) - m.mean) * m.rstd;
    };
    const auto dy = [&](int64_t r, int64_t c) { return get<T>(a.dy, r * a.width + c); };

    // Parameters first: dx may lie over dy.
    for (int64_t c = 0; c < a.width; ++c) {
        if (a.dweight != nullptr) {
            put_gradient<W>(a.dweight, c, sum(a.rows, [&](int64_t r) { return dy(r, c) * hat(r, c); }), a.accumulate);
        }
        if (a.dbias != nullptr)
            put_gradient<W>(a.dbias, c, sum(a.rows, [&](int64_t r) { return dy(r, c); }), a.accumulate);
    }
    if (a.dx == nullptr) return;
    for (int64_t r = 0; r < a.rows; ++r) {
        const auto g = [&](int64_t c) { return dy(r, c) * gamma<T>(a.weight, c, a.zero_centered); };
        const auto x = [&](int64_t c) { return hat(r, c); };
        const GradientMeans mean = gradient_means(a.width, a.rms, g, x);
        const double rstd = moments_of(r).rstd;
        for (int64_t c = 0; c < a.width; ++c) {
            const int64_t at = r * a.width + c;
            const double add = a.add != nullptr ? get<T>(a.add, at) : 0.0;
            put<T>(a.dx, at, add + rstd * (g(c) - mean.g - x(c) * mean.gx));
        }
    }
}

}  // namespace

void norm_forward(const NormForward &a) {
    with_type(a.dtype, [&]<class T>() { forward<T>(a); });
}
void norm_backward(const NormBackward &a) {
    with_type(a.dtype, [&]<class T>() { backward<T>(a); });
}

int64_t norm_backward_workspace(const KernelSize &, int32_t) { return 0; }

}  // namespace mdlm::reference

// SPDX-License-Identifier: Apache-2.0
// Norms of rows that float cannot do: squares past its range, means that it rounds by more than the row varies,
// gradients whose products overflow. The kernels tell such rows by what they have computed anyway, and do them again
// here, in double: slow, and rare.
#pragma once
#include <cmath>
#include <cstdint>

#include "device/kernels.hpp"

namespace mdlm::cpu {

// Forward, from float sums about a middle near the mean: square, the mean of (x - middle)^2, and off, the mean of x -
// middle. The variance is their difference; where little of it is left, or where squares may have left the range of
// float, float does not do. Nor does it for NaN.
inline double variance_of(double square, double off) { return square - off * off; }
inline bool float_does(double square, double off, double epsilon) {
    const double v = variance_of(square, off) + epsilon;
    return square < 1e36 && v >= 1e-30 && off * off <= 3.0 * v;
}
// Backward, from the stored statistics: a mean that float rounds by less than 2e-6 of the row's spread, and an rstd
// well inside its range.
inline bool float_does(float mean, float rstd) {
    return rstd >= 1e-19f && rstd <= 1e16f && std::fabs(mean) * rstd <= 32.0f;
}
// Backward, from the sums along a row: products that overflow make them infinite or NaN.
inline bool float_did(double along_x, double along_1) { return std::fabs(along_x) < 1e37 && std::fabs(along_1) < 1e37; }

struct Moments {
    double mean, rstd;
};
// Of elements [at, at + n).
Moments moments(DType type, const void *base, int64_t at, int64_t n, bool rms, double epsilon);

// One row. dweight and dbias: sums that the row is added to, or null.
void exact_norm_forward(const NormForward &a, int64_t row);
void exact_norm_backward(const NormBackward &a, int64_t row, float *dweight, float *dbias);

}  // namespace mdlm::cpu

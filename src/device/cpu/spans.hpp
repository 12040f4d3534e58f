// SPDX-License-Identifier: Apache-2.0
// Spans of activations as floats, and the few things that kernels do with them whatever their own loops are.
#pragma once
#include <cstdint>

#include "base/dtype.hpp"
#include "base/philox.hpp"

namespace mdlm::cpu {

inline constexpr int64_t max_span = 256;  // floats of a buffer on the stack

// Elements [at, at + n) of an f32 or bf16 array.
void read(DType type, const void *base, int64_t at, int64_t n, float *out);
void write(DType type, void *base, int64_t at, int64_t n, const float *in);
inline const void *at(DType type, const void *base, int64_t index) {
    return static_cast<const char *>(base) + index * size_of(type);
}
inline void *at(DType type, void *base, int64_t index) { return static_cast<char *>(base) + index * size_of(type); }

// Asks for elements [at, at + n) before they are read or written: rows of a head are far apart, often each on a page of
// its own, where the processor does not look ahead itself. That many rows ahead is far enough.
inline constexpr int64_t rows_ahead = 12;
template <bool to_write = false>
inline void prefetch(DType type, const void *base, int64_t first, int64_t n) {
    const char *from = static_cast<const char *>(at(type, base, first));
    for (int64_t i = 0; i < n * size_of(type); i += 64) __builtin_prefetch(from + i, to_write);
}

// Summed in lanes and then over the lanes: the order depends on n only.
float sum(const float *x, int64_t n);
float dot(const float *x, const float *y, int64_t n);

// factors[i] = dropout.factor(index + i)
void draw(const Dropout &dropout, uint64_t index, int64_t n, float *factors);

// x[i] = e^x[i], by exp_of of vector-inl.hpp.
void exps(float *x, int64_t n);

}  // namespace mdlm::cpu

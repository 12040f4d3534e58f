// Spans of activations as floats, and the few things that all kernels do with spans of floats. Kernels stage through small buffers, so
// that their loops are over floats that the compiler vectorises, whatever the dtype is.
#pragma once
#include <cstdint>

#include "base/dtype.hpp"
#include "base/philox.hpp"

namespace mdlm::cpu {

inline constexpr int64_t span = 256;  // floats in a staging buffer on the stack

// Elements [at, at + n) of an f32 or bf16 array.
void read(DType type, const void *base, int64_t at, int64_t n, float *out);
void write(DType type, void *base, int64_t at, int64_t n, const float *in);
inline const void *at(DType type, const void *base, int64_t index) { return static_cast<const char *>(base) + index * size_of(type); }
inline void *at(DType type, void *base, int64_t index) { return static_cast<char *>(base) + index * size_of(type); }

// Sums in 16 lanes, then over the lanes: the order depends on n only.
float sum(const float *x, int64_t n);
float dot(const float *x, const float *y, int64_t n);

// factors[i] = dropout.factor(index + i)
void draw(const Dropout &dropout, uint64_t index, int64_t n, float *factors);

// x[i] = e^x[i] to 2 units in the last place, with vectors of 4. Below -87 it is e^-87 (about 1e-38), above 88 it is e^88.
void exps(float *x, int64_t n);

}  // namespace mdlm::cpu

// SPDX-License-Identifier: Apache-2.0
// Products of small float tiles that the caller has packed: what attention is made of.
#pragma once
#include <cstdint>

namespace mdlm::cpu {

// Tiles are padded to multiples of these, on every instruction set, so that what a kernel needs does not depend on it.
inline constexpr int64_t product_m = 6, product_n = 32;
constexpr int64_t padded(int64_t n, int64_t to) { return (n + to - 1) / to * to; }
// Distance of rows of n floats: not a power of two, whose rows would all fall into a few sets of the cache.
constexpr int64_t row_of(int64_t n) { return padded(n, product_n) + 16; }

// c[m, n] = a[m, k] b[k, n], or += it; a(i, p) = a[i * a_row + p * a_k]. m and n are any; what lies beyond up to the
// next multiple of product_m and product_n is read and written. Every element of c is summed over p in order from 0 and
// then added, wherever it stands: the bits depend on its row of a and its column of b only.
void product(int64_t m, int64_t n, int64_t k, const float *a, int64_t a_row, int64_t a_k, const float *b, int64_t b_row,
             float *c, int64_t c_row, bool add);

// The instruction set that the kernels of this folder were picked for: "AVX2".
const char *kernel_target();

}  // namespace mdlm::cpu

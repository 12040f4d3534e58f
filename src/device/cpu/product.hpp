// The inner loop of every matrix product that the CPU device does itself: float tiles that the caller has packed and padded.
#pragma once
#include <cstdint>

namespace mdlm::cpu {

inline constexpr int64_t product_m = 4, product_n = 8;  // tiles are padded to multiples of these
constexpr int64_t padded(int64_t n, int64_t to) { return (n + to - 1) / to * to; }
// Distance of rows of n floats: not a power of two, whose rows would all fall into a few sets of the cache.
constexpr int64_t row_of(int64_t n) { return padded(n, product_n) + product_n; }

// c[m, n] += a[m, k] b[k, n]; a(i, p) = a[i * a_row + p * a_k]. m is a multiple of product_m, n of product_n. Every element of c is
// summed over p in order from 0 and then added, wherever it stands: the bits depend on its row of a and its column of b only.
void product(int64_t m, int64_t n, int64_t k, const float *a, int64_t a_row, int64_t a_k, const float *b, int64_t b_row, float *c,
             int64_t c_row);

}  // namespace mdlm::cpu

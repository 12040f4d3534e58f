// SPDX-License-Identifier: Apache-2.0
// Products of probabilities (or gradients of scores) with keys, values, queries or gradients, over what the mask lets
// through.
#pragma once
#include "device/cpu/attention.hpp"

namespace mdlm::cpu {

// p holds a tile [rows, columns] of `seen`, p_row floats a row, with 0 where a key is not seen. That 0 hides any number
// but no NaN and no infinity, so where b holds one each row is summed over what it sees only: in the same order, so
// that rows which see none keep their bits. c[rows, n] = p b, or += it; b [columns, n].
void sum_over_keys(const Intervals &seen, const float *p, int64_t p_row, const float *b, int64_t b_row, int64_t n,
                   float *c, int64_t c_row, bool add);
// c[columns, n] = p^T b, or += it; b [rows, n].
void sum_over_queries(const Intervals &seen, const float *p, int64_t p_row, const float *b, int64_t b_row, int64_t n,
                      float *c, int64_t c_row, bool add);

}  // namespace mdlm::cpu

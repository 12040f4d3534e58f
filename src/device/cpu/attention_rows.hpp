// SPDX-License-Identifier: Apache-2.0
// What fused attention does with a tile of scores between its products, row by row.
#pragma once
#include <cstdint>

#include "device/cpu/attention.hpp"

namespace mdlm::cpu {

// Scores are exponents of 2: queries are scaled before their products with keys, in forward and backward alike, so that
// both see the same bits. Half an ulp of a score is the exponent's error; what the score is compared with must have
// that error too.
struct ScoreScale {
    float query;  // by which queries are scaled
    double key;   // dk = key * dS^T (scaled q)
    explicit ScoreScale(double scale);
};

// rows of x, columns each, times factor.
void scale_rows(float *x, int64_t rows, int64_t columns, int64_t row, float factor);

// Turns every row of scores ([tile_q, score_row]) into 2^(score - largest so far), 0 where a key is not seen, and up to
// the end of the padded row; largest and totals go on, and what is summed up already ([tile_q, sums_row], width
// columns) is rescaled. largest is rounded up to a whole number: rescaling by a power of 2 is exact, and rows do not
// drift however many tiles they have.
void online_softmax(const Intervals &seen, float *scores, float *largest, double *totals, float *sums, int64_t sums_row,
                    int64_t width);

// scores become P = 2^(score - largest) inverse, and gradients (of the dropped probabilities, [tile_q, score_row])
// become P (gradient - d); with factors of dropout ([tile_q, score_row], or null) P (factor gradient - d), and the
// scores factor P.
void score_gradients(const Intervals &seen, float *scores, const float *largest, const float *inverse, const float *d,
                     const float *factors, float *gradients);

}  // namespace mdlm::cpu

// What fused attention does with a tile of scores between its products, row by row.
#pragma once
#include <cstdint>

#include "device/cpu/attention.hpp"

namespace mdlm::cpu {

// A tile of scores of queries [0, rows) and keys [k0, k0 + columns), which row r sees from begin[r] to end[r], counted from k0.
struct ScoreTile {
    float *scores;  // [tile_q, score_row]
    int64_t rows, columns;
    int64_t begin[tile_q], end[tile_q];

    ScoreTile(float *base, const Seen &seen, int64_t r, int64_t k0, int64_t n) : scores(base), rows(r), columns(n) {
        for (int64_t i = 0; i < rows; ++i) {
            begin[i] = seen.begin(i, k0, n);
            end[i] = seen.end(i, k0, n);
        }
    }
};

// Turns every row into exp(scale * score - largest so far), 0 where a key is not seen, and up to the end of the padded row; largest (as an
// exponent of 2) and totals go on, and what is summed up already ([tile_q, sums_row], width columns) is rescaled.
void online_softmax(const ScoreTile &tile, double scale, float *largest, float *totals, float *sums, int64_t sums_row, int64_t width);

// scores become P = exp(scale * score - lse), and gradients (of the dropped probabilities, [tile_q, score_row]) become
// P (gradient - d); with factors of dropout ([tile_q, score_row], or null) P (factor gradient - d), and the scores factor P.
void score_gradients(const ScoreTile &tile, double scale, const float *lse, const float *d, const float *factors, float *gradients);

}  // namespace mdlm::cpu

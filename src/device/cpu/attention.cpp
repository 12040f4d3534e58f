// SPDX-License-Identifier: Apache-2.0
// Fused attention, forward: tiles of queries by tiles of keys with an online softmax. A task is several tiles of
// queries of one head, so that a tile of keys and values is packed once for all of them. How many does not change a
// bit: each row sees its tiles of keys in order.
#include "device/cpu/attention.hpp"

#include <cmath>

#include "device/cpu/attention_rows.hpp"
#include "device/cpu/kernels.hpp"
#include "device/cpu/masked_products.hpp"
#include "device/cpu/tasks.hpp"

namespace mdlm::cpu {
namespace {

constexpr int64_t most_tiles = 4;

// Scratch of one thread, in floats. q, sums and the statistics are those of all tiles of the task.
struct Scratch {
    int64_t wide, row;
    float *q, *sums, *keys, *values, *scores, *largest;
    double *totals;
    Scratch(int64_t d, float *base)
        : wide(padded(d, product_n)), row(row_of(d)), q(base), sums(q + most_tiles * tile_q * row),
          keys(sums + most_tiles * tile_q * row), values(keys + wide * score_row), scores(values + tile_k * row),
          largest(scores + tile_q * score_row), totals(reinterpret_cast<double *>(largest + most_tiles * tile_q)) {}
    static int64_t floats(int64_t d) {
        return (2 * most_tiles * tile_q + tile_k) * row_of(d) + padded(d, product_n) * score_row + tile_q * score_row +
               3 * most_tiles * tile_q;
    }
};

struct ForwardTask {
    const AttentionForward &a;
    const Attention &shape;
    Scratch s;
    int64_t b, head;

    int64_t group() const { return head / (shape.heads / shape.groups); }
    int64_t in_group() const { return head % (shape.heads / shape.groups); }

    void scores(int64_t tile, int64_t q0, int64_t k0, int64_t columns, const VisibleKeys &seen) {
        const int64_t rows = std::min(tile_q, shape.tokens.seq - q0);
        const Intervals inside(seen, rows, k0, columns);
        float *q = s.q + tile * tile_q * s.row, *sums = s.sums + tile * tile_q * s.row;
        product(rows, columns, shape.d, q, s.row, 1, s.keys, score_row, s.scores, score_row, false);
        online_softmax(inside, s.scores, s.largest + tile * tile_q, s.totals + tile * tile_q, sums, s.row, s.wide);
        if (shape.dropout.on)
            for (int64_t r = 0; r < rows; ++r) {
                float factors[tile_k], *row = s.scores + r * score_row;
                draw(shape.dropout, probability_index(shape, b, head, q0 + r, k0), columns, factors);
                for (int64_t j = 0; j < columns; ++j) row[j] *= factors[j];
            }
        sum_over_keys(inside, s.scores, score_row, s.values, s.row, shape.d, sums, s.row, true);
    }

    void finish(int64_t tile, int64_t q0) {
        const int64_t rows = std::min(tile_q, shape.tokens.seq - q0);
        const int64_t at = (b * shape.heads + head) * shape.tokens.seq + q0;
        float *row_max = static_cast<float *>(a.row_max) + at, *inverse_sum = static_cast<float *>(a.inverse_sum) + at;
        const Matrix to = head_of(shape, a.context, b, group(), in_group());
        for (int64_t r = 0; r < rows; ++r) {
            prefetch_ahead<true>(to, q0 + r, q0 + rows, shape.d);
            float *row = s.sums + (tile * tile_q + r) * s.row;
            const auto inverse = static_cast<float>(1.0 / s.totals[tile * tile_q + r]);
            for (int64_t c = 0; c < shape.d; ++c) row[c] = unsigned_zero(row[c] * inverse);
            write(shape.dtype, a.context.base, to.offset + (q0 + r) * to.row, shape.d, row);
            row_max[r] = s.largest[tile * tile_q + r];
            inverse_sum[r] = inverse;
        }
    }

    // Tiles of queries from q0 on.
    void run(int64_t q0, int64_t tiles) {
        const int64_t seq = shape.tokens.seq, rows = std::min(tiles * tile_q, seq - q0);
        VisibleKeys seen[most_tiles];
        int64_t low = seq, high = 0;
        for (int64_t i = 0; i < tiles; ++i) {
            seen[i] = VisibleKeys(shape.mask, q0 + i * tile_q, std::min(tile_q, seq - q0 - i * tile_q));
            low = std::min(low, seen[i].low);
            high = std::max(high, seen[i].high);
        }
        pack(head_of(shape, a.q, b, group(), in_group()), q0, rows, padded(rows, product_m), 0, shape.d, s.wide, s.q,
             s.row);
        scale_rows(s.q, rows, shape.d, s.row, ScoreScale(shape.scale).query);
        std::fill_n(s.sums, padded(rows, product_m) * s.row, 0.0f);
        std::fill_n(s.largest, rows, -INFINITY);
        std::fill_n(s.totals, rows, 0.0);
        const Matrix keys = head_of(shape, a.k, b, group(), 0), values = head_of(shape, a.v, b, group(), 0);
        for (int64_t k0 = low / tile_k * tile_k; k0 < high; k0 += tile_k) {
            const int64_t columns = std::min(tile_k, seq - k0);
            const auto sees = [&](const VisibleKeys &one) { return one.low < k0 + columns && one.high > k0; };
            if (std::none_of(seen, seen + tiles, sees)) continue;
            pack_transposed(keys, k0, columns, padded(columns, product_n), 0, shape.d, shape.d, s.keys, score_row);
            pack(values, k0, columns, columns, 0, shape.d, s.wide, s.values, s.row);
            for (int64_t i = 0; i < tiles; ++i)
                if (sees(seen[i])) scores(i, q0 + i * tile_q, k0, columns, seen[i]);
        }
        for (int64_t i = 0; i < tiles; ++i) finish(i, q0 + i * tile_q);
    }
};

}  // namespace

void attention_forward(Pool &pool, const AttentionForward &a) {
    const int64_t heads = a.shape.tokens.batch * a.shape.heads, tiles = ceil_div(a.shape.tokens.seq, tile_q);
    int64_t each = most_tiles;
    while (each > 1 && heads * ceil_div(tiles, each) < 4 * pool.size()) each /= 2;
    const int64_t parts = ceil_div(tiles, each),
                  stride = rounded(Scratch::floats(a.shape.d) * int64_t{sizeof(float)}) / int64_t{sizeof(float)};
    pool.parallel_for(heads * parts, [&](int64_t i, int32_t worker) {
        const int64_t at = i / parts, first = i % parts * each;
        ForwardTask task{a, a.shape, Scratch(a.shape.d, static_cast<float *>(a.workspace) + worker * stride),
                         at / a.shape.heads, at % a.shape.heads};
        task.run(first * tile_q, std::min(each, tiles - first));
    });
}

int64_t attention_forward_workspace(const KernelSize &s, int32_t threads) {
    return mul(rounded(mul(Scratch::floats(s.d), sizeof(float))), threads);
}

}  // namespace mdlm::cpu

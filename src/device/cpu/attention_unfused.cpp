// SPDX-License-Identifier: Apache-2.0
// Attention in steps, over scores and probabilities [b, heads, s, s] in memory. Tiles are small enough for the stack.
#include <cmath>
#include <cstring>

#include "device/cpu/attention_rows.hpp"
#include "device/cpu/kernels.hpp"
#include "device/cpu/masked_products.hpp"
#include "device/cpu/product.hpp"
#include "device/cpu/tasks.hpp"

namespace mdlm::cpu {
namespace {

constexpr int64_t tile = 48, tile_row = row_of(tile);
static_assert(tile <= tile_q);

// The matrix [s, s] of one head.
Matrix square(const Attention &a, const void *base, int64_t b, int64_t head) {
    return {a.dtype, base, (b * a.heads + head) * a.tokens.seq * a.tokens.seq, a.tokens.seq};
}

// Calls body(b, head, q0, rows) for each tile of queries of each head.
template <class Body>
void query_tiles(Pool &pool, const Attention &a, Body &&body) {
    const int64_t tiles = ceil_div(a.tokens.seq, tile);
    pool.parallel_for(a.tokens.batch * a.heads * tiles, [&](int64_t i, int32_t) {
        const int64_t q0 = i % tiles * tile;
        body(i / tiles / a.heads, i / tiles % a.heads, q0, std::min(tile, a.tokens.seq - q0));
    });
}

struct Tile {
    float x[tile * tile_row];
};

// sums = factor left[i0 .., :] right[j0 .., :]^T over d channels: scores, or gradients of probabilities. The factor
// comes first, so that no score overflows on the way.
void by_channels(const Matrix &left, float factor, int64_t i0, int64_t rows, const Matrix &right, int64_t j0,
                 int64_t columns, int64_t d, Tile &sums) {
    Tile l, r;
    for (int64_t c0 = 0; c0 < d; c0 += tile) {
        const int64_t n = std::min(tile, d - c0);
        pack(left, i0, rows, tile, c0, n, n, l.x, tile_row);
        if (factor != 1.0f) scale_rows(l.x, rows, n, tile_row, factor);
        pack_transposed(right, j0, columns, tile_row, c0, n, n, r.x, tile_row);
        product(rows, columns, n, l.x, tile_row, 1, r.x, tile_row, sums.x, tile_row, c0 > 0);
    }
}

// A tile of probabilities (or score gradients) [query, key], with dropout where it is asked for.
void squares(const Attention &a, const Matrix &from, int64_t b, int64_t head, int64_t q0, int64_t rows, int64_t k0,
             int64_t columns, const Dropout &dropout, Tile &out) {
    pack(from, q0, rows, tile, k0, columns, tile, out.x, tile_row);
    if (!dropout.on) return;
    float factors[tile];
    for (int64_t r = 0; r < rows; ++r) {
        draw(dropout, probability_index(a, b, head, q0 + r, k0), columns, factors);
        for (int64_t j = 0; j < columns; ++j) out.x[r * tile_row + j] *= factors[j];
    }
}

// out[q, c] = factor * sum over keys of dropout(m)[q, k] right[k, c]: context, dq.
void over_keys(Pool &pool, const Attention &a, const void *m, const Dropout &dropout, const Heads &right,
               const Heads &out, float factor) {
    const int64_t per_group = a.heads / a.groups;
    query_tiles(pool, a, [&](int64_t b, int64_t head, int64_t q0, int64_t rows) {
        const int64_t g = head / per_group, i = head % per_group;
        const VisibleKeys seen(a.mask, q0, rows);
        const Matrix from = square(a, m, b, head), keys = head_of(a, right, b, g, 0), to = head_of(a, out, b, g, i);
        for (int64_t c0 = 0; c0 < a.d; c0 += tile) {
            const int64_t n = std::min(tile, a.d - c0);
            Tile sums{}, p, k;
            for (int64_t k0 = seen.low / tile * tile; k0 < seen.high; k0 += tile) {
                const int64_t columns = std::min(tile, a.tokens.seq - k0);
                squares(a, from, b, head, q0, rows, k0, columns, dropout, p);
                pack(keys, k0, columns, columns, c0, n, tile_row, k.x, tile_row);
                sum_over_keys(Intervals(seen, rows, k0, columns), p.x, tile_row, k.x, tile_row, n, sums.x, tile_row,
                              true);
            }
            for (int64_t r = 0; r < rows; ++r) {
                for (int64_t c = 0; c < n; ++c)
                    sums.x[r * tile_row + c] = unsigned_zero(sums.x[r * tile_row + c] * factor);
                write(a.dtype, out.base, to.offset + (q0 + r) * to.row + c0, n, sums.x + r * tile_row);
            }
        }
    });
}

// out[k, c] = factor * sum over the group's heads and queries of dropout(m)[q, k] right[q, c]: dv, dk.
void over_queries(Pool &pool, const Attention &a, const void *m, const Dropout &dropout, const Heads &right,
                  const Heads &out, float factor) {
    const int64_t per_group = a.heads / a.groups, tiles = ceil_div(a.tokens.seq, tile);
    pool.parallel_for(a.tokens.batch * a.groups * tiles, [&](int64_t index, int32_t) {
        const int64_t b = index / tiles / a.groups, g = index / tiles % a.groups, k0 = index % tiles * tile;
        const int64_t columns = std::min(tile, a.tokens.seq - k0);
        const Matrix to = head_of(a, out, b, g, 0);
        for (int64_t c0 = 0; c0 < a.d; c0 += tile) {
            const int64_t n = std::min(tile, a.d - c0);
            Tile sums{}, p, q;
            for (int64_t i = 0; i < per_group; ++i)
                for (int64_t q0 = 0; q0 < a.tokens.seq; q0 += tile) {
                    const int64_t rows = std::min(tile, a.tokens.seq - q0), head = g * per_group + i;
                    const VisibleKeys seen(a.mask, q0, rows);
                    if (seen.high <= k0 || seen.low >= k0 + columns) continue;
                    squares(a, square(a, m, b, head), b, head, q0, rows, k0, columns, dropout, p);
                    pack(head_of(a, right, b, g, i), q0, rows, rows, c0, n, tile_row, q.x, tile_row);
                    sum_over_queries(Intervals(seen, rows, k0, columns), p.x, tile_row, q.x, tile_row, n, sums.x,
                                     tile_row, true);
                }
            for (int64_t r = 0; r < columns; ++r) {
                for (int64_t c = 0; c < n; ++c)
                    sums.x[r * tile_row + c] = unsigned_zero(sums.x[r * tile_row + c] * factor);
                write(a.dtype, out.base, to.offset + (k0 + r) * to.row + c0, n, sums.x + r * tile_row);
            }
        }
    });
}

// to[q, k] = left[q] . right[k], times factor and dropout where the query sees the key, else `outside`.
void over_channels(Pool &pool, const Attention &a, const Heads &left, const Heads &right, float factor,
                   const Dropout &dropout, float outside, void *to) {
    const int64_t per_group = a.heads / a.groups;
    query_tiles(pool, a, [&](int64_t b, int64_t head, int64_t q0, int64_t rows) {
        const int64_t g = head / per_group, i = head % per_group;
        const VisibleKeys seen(a.mask, q0, rows);
        const Matrix m = square(a, to, b, head), queries = head_of(a, left, b, g, i), keys = head_of(a, right, b, g, 0);
        for (int64_t k0 = 0; k0 < a.tokens.seq; k0 += tile) {
            const int64_t columns = std::min(tile, a.tokens.seq - k0);
            Tile sums;
            if (k0 < seen.high && k0 + columns > seen.low)
                by_channels(queries, factor, q0, rows, keys, k0, columns, a.d, sums);
            for (int64_t r = 0; r < rows; ++r) {
                float *row = sums.x + r * tile_row, factors[tile];
                const int64_t begin = seen.begin(r, k0, columns), end = seen.end(r, k0, columns);
                draw(dropout, probability_index(a, b, head, q0 + r, k0 + begin), end - begin, factors);
                for (int64_t j = begin; j < end; ++j) row[j] *= factors[j - begin];
                std::fill(row, row + begin, outside);
                std::fill(row + end, row + columns, outside);
                write(a.dtype, to, m.offset + (q0 + r) * m.row + k0, columns, row);
            }
        }
    });
}

// Calls body(first element of the row, first seen key, one past the last) for every query of every head.
template <class Body>
void score_rows(Pool &pool, const Attention &a, Body &&body) {
    const int64_t seq = a.tokens.seq;
    parallel_ranges(pool, a.tokens.batch * a.heads * seq, seq, [&](int64_t begin, int64_t end, int32_t) {
        for (int64_t i = begin; i < end; ++i) body(i * seq, a.mask.first(i % seq), a.mask.last(i % seq));
    });
}

void clear(const Attention &a, void *to, int64_t begin, int64_t end) {
    std::memset(at(a.dtype, to, begin), 0, static_cast<size_t>((end - begin) * size_of(a.dtype)));
}

}  // namespace

void attn_scores(Pool &pool, const AttnScores &a) {
    over_channels(pool, a.shape, a.q, a.k, static_cast<float>(a.shape.scale), Dropout{}, -INFINITY, a.scores);
}

void attn_softmax(Pool &pool, const AttnSoftmax &a) {
    score_rows(pool, a.shape, [&](int64_t row, int64_t first, int64_t last) {
        float x[max_span], top = -INFINITY;
        double total = 0.0;
        const auto load = [&](int64_t j0, int64_t n) {
            read(a.shape.dtype, a.scores, row + j0, n, x);
            for (int64_t j = 0; j < n; ++j) x[j] -= top;
            exps(x, n);
        };
        for (int64_t j0 = first; j0 < last; j0 += max_span) {
            const int64_t n = std::min(max_span, last - j0);
            read(a.shape.dtype, a.scores, row + j0, n, x);
            for (int64_t j = 0; j < n; ++j) top = x[j] > top ? x[j] : top;
        }
        for (int64_t j0 = first; j0 < last; j0 += max_span) {
            load(j0, std::min(max_span, last - j0));
            total += sum(x, std::min(max_span, last - j0));
        }
        const auto inverse = static_cast<float>(1.0 / total);
        for (int64_t j0 = first; j0 < last; j0 += max_span) {
            const int64_t n = std::min(max_span, last - j0);
            load(j0, n);
            for (int64_t j = 0; j < n; ++j) x[j] *= inverse;
            write(a.shape.dtype, a.probabilities, row + j0, n, x);
        }
        clear(a.shape, a.probabilities, row, row + first);
        clear(a.shape, a.probabilities, row + last, row + a.shape.tokens.seq);
    });
}

void attn_context(Pool &pool, const AttnContext &a) {
    over_keys(pool, a.shape, a.probabilities, a.shape.dropout, a.v, a.context, 1.0f);
}

void attn_context_backward(Pool &pool, const AttnContextBackward &a) {
    if (a.dprobabilities != nullptr)
        over_channels(pool, a.shape, a.dcontext, a.v, 1.0f, a.shape.dropout, 0.0f, a.dprobabilities);
    if (a.dv.base != nullptr) over_queries(pool, a.shape, a.probabilities, a.shape.dropout, a.dcontext, a.dv, 1.0f);
}

void attn_softmax_backward(Pool &pool, const AttnSoftmaxBackward &a) {
    const DType type = a.shape.dtype;
    score_rows(pool, a.shape, [&](int64_t row, int64_t first, int64_t last) {
        float p[max_span], dp[max_span];
        double along = 0.0;
        const auto load = [&](int64_t j0, int64_t n) {
            read(type, a.probabilities, row + j0, n, p);
            read(type, a.dprobabilities, row + j0, n, dp);
        };
        for (int64_t j0 = first; j0 < last; j0 += max_span) {
            load(j0, std::min(max_span, last - j0));
            along += dot(p, dp, std::min(max_span, last - j0));
        }
        const auto d = static_cast<float>(along);
        for (int64_t j0 = first; j0 < last; j0 += max_span) {
            const int64_t n = std::min(max_span, last - j0);
            load(j0, n);
            for (int64_t j = 0; j < n; ++j) dp[j] = p[j] * (dp[j] - d);
            write(type, a.dscores, row + j0, n, dp);
        }
        clear(a.shape, a.dscores, row, row + first);
        clear(a.shape, a.dscores, row + last, row + a.shape.tokens.seq);
    });
}

void attn_scores_backward(Pool &pool, const AttnScoresBackward &a) {
    const auto scale = static_cast<float>(a.shape.scale);
    if (a.dq.base != nullptr) over_keys(pool, a.shape, a.dscores, Dropout{}, a.k, a.dq, scale);
    if (a.dk.base != nullptr) over_queries(pool, a.shape, a.dscores, Dropout{}, a.q, a.dk, scale);
}

int64_t attn_context_backward_workspace(const KernelSize &, int32_t) { return 0; }
int64_t attn_scores_backward_workspace(const KernelSize &, int32_t) { return 0; }

}  // namespace mdlm::cpu

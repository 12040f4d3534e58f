// Fused attention, forward: tiles of queries by tiles of keys with an online softmax. One task a tile of queries of one head.
#include "device/cpu/attention.hpp"

#include <cmath>

#include "device/cpu/kernels.hpp"
#include "device/cpu/product.hpp"
#include "device/cpu/tasks.hpp"

namespace mdlm::cpu {
namespace {

constexpr int64_t score_row = row_of(tile_k);

// Scratch of one thread, in floats.
struct Scratch {
    int64_t wide, row;
    float *q, *sums, *keys, *values, *scores;
    explicit Scratch(int64_t d, float *base = nullptr)
        : wide(padded(d, product_n)), row(row_of(d)), q(base), sums(q + tile_q * row), keys(sums + tile_q * row), values(keys + wide * score_row),
          scores(values + tile_k * row) {}
    static int64_t floats(int64_t d) { return (2 * tile_q + tile_k) * row_of(d) + padded(d, product_n) * score_row + tile_q * score_row; }
};

// Turns a row of scaled scores into exp(score - largest so far), with 0 outside [begin, end), and rescales what is summed up already.
void online_row(float *scores, int64_t begin, int64_t end, float *sums, int64_t wide, float *largest, float *total) {
    float top = *largest;
    for (int64_t j = begin; j < end; ++j) top = scores[j] > top ? scores[j] : top;
    const float shrink = *total == 0.0f ? 0.0f : std::exp(*largest - top);
    for (int64_t j = 0; j < tile_k; ++j) scores[j] -= top;
    exps(scores, tile_k);
    std::fill(scores, scores + begin, 0.0f);
    std::fill(scores + end, scores + tile_k, 0.0f);
    *total = *total * shrink + sum(scores, tile_k);
    *largest = top;
    if (shrink != 1.0f)
        for (int64_t c = 0; c < wide; ++c) sums[c] *= shrink;
}

void query_tile(const AttentionForward &a, int64_t b, int64_t head, int64_t q0, Scratch &s) {
    const Attention &shape = a.shape;
    const int64_t per_group = shape.heads / shape.groups, g = head / per_group, i = head % per_group;
    const int64_t rows = std::min(tile_q, shape.tokens.seq - q0), wide_rows = padded(rows, product_m);
    const Seen seen(shape.mask, q0, rows);
    const auto scale = static_cast<float>(shape.scale);
    const Matrix keys = head_of(shape, a.k, b, g, 0), values = head_of(shape, a.v, b, g, 0);
    float largest[tile_q], totals[tile_q] = {}, factors[tile_k];
    std::fill_n(largest, tile_q, -INFINITY);
    pack(head_of(shape, a.q, b, g, i), q0, rows, wide_rows, 0, shape.d, s.wide, s.q, s.row);
    std::fill_n(s.sums, wide_rows * s.row, 0.0f);
    for (int64_t k0 = seen.low / tile_k * tile_k; k0 < seen.high; k0 += tile_k) {
        const int64_t columns = std::min(tile_k, shape.tokens.seq - k0);
        pack_transposed(keys, k0, columns, tile_k, 0, shape.d, s.wide, s.keys, score_row);
        pack(values, k0, columns, tile_k, 0, shape.d, s.wide, s.values, s.row);
        std::fill_n(s.scores, wide_rows * score_row, 0.0f);
        product(wide_rows, tile_k, s.wide, s.q, s.row, 1, s.keys, score_row, s.scores, score_row);
        for (int64_t r = 0; r < rows; ++r) {
            float *row = s.scores + r * score_row;
            const int64_t begin = seen.begin(r, k0, columns), end = seen.end(r, k0, columns);
            if (begin == end) {
                std::fill_n(row, tile_k, 0.0f);
                continue;
            }
            for (int64_t j = 0; j < tile_k; ++j) row[j] *= scale;
            online_row(row, begin, end, s.sums + r * s.row, s.wide, &largest[r], &totals[r]);
            if (!shape.dropout.on) continue;
            draw(shape.dropout, probability_index(shape, b, head, q0 + r, k0), tile_k, factors);
            for (int64_t j = 0; j < tile_k; ++j) row[j] *= factors[j];
        }
        product(wide_rows, s.wide, tile_k, s.scores, score_row, 1, s.values, s.row, s.sums, s.row);
    }
    float *lse = static_cast<float *>(a.lse) + (b * shape.heads + head) * shape.tokens.seq + q0;
    for (int64_t r = 0; r < rows; ++r) {
        float *row = s.sums + r * s.row;
        const float inverse = 1.0f / totals[r];
        for (int64_t c = 0; c < shape.d; ++c) row[c] *= inverse;
        write_row(shape, a.context, b, g, i, q0 + r, shape.d, row);
        lse[r] = largest[r] + std::log(totals[r]);
    }
}

}  // namespace

void attention_forward(Pool &pool, const AttentionForward &a) {
    const int64_t tiles = ceil_div(a.shape.tokens.seq, tile_q), heads = a.shape.heads;
    const int64_t stride = rounded(Scratch::floats(a.shape.d) * int64_t{sizeof(float)}) / int64_t{sizeof(float)};
    pool.each(a.shape.tokens.batch * heads * tiles, [&](int64_t i, int32_t worker) {
        Scratch scratch(a.shape.d, static_cast<float *>(a.workspace) + worker * stride);
        query_tile(a, i / tiles / heads, i / tiles % heads, i % tiles * tile_q, scratch);
    });
}

int64_t attention_forward_workspace(const KernelSize &s, int32_t threads) {
    return mul(rounded(mul(Scratch::floats(s.d), sizeof(float))), threads);
}

}  // namespace mdlm::cpu

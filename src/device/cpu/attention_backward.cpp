// Fused attention, backward, in two passes, so that every gradient has one owner that sums in a fixed order:
//   1. a task a tile of queries of one head: D = rowsum(dcontext * context), dq over the tiles of keys;
//   2. a task a tile of keys of one group: dk, dv over the group's heads and their tiles of queries.
// P = exp(scale q k^T - lse); dP = dropout(dcontext v^T); dS = P (dP - D); dq = scale dS k; dk = scale dS^T q; dv = dropout(P)^T dcontext.
#include "device/cpu/attention.hpp"
#include "device/cpu/kernels.hpp"
#include "device/cpu/product.hpp"
#include "device/cpu/tasks.hpp"

namespace mdlm::cpu {
namespace {

constexpr int64_t score_row = row_of(tile_k);

// Scratch of one thread, in floats.
struct Scratch {
    int64_t wide, row;
    float *q, *dcontext, *keys, *keys_turned, *values_turned, *first, *second, *p, *ds;
    explicit Scratch(int64_t d, float *base)
        : wide(padded(d, product_n)), row(row_of(d)), q(base), dcontext(q + tile_q * row), keys(dcontext + tile_q * row),
          keys_turned(keys + tile_k * row), values_turned(keys_turned + wide * score_row), first(values_turned + wide * score_row),
          second(first + tile_k * row), p(second + tile_k * row), ds(p + tile_q * score_row) {}
    static int64_t floats(int64_t d) {
        return (2 * tile_q + 3 * tile_k) * row_of(d) + 2 * padded(d, product_n) * score_row + 2 * tile_q * score_row;
    }
};
static_assert(tile_q == tile_k, "the accumulators first and second hold either");

int64_t scratch_floats(int64_t d) { return rounded(mul(Scratch::floats(d), sizeof(float))) / int64_t{sizeof(float)}; }

struct Task {
    const AttentionBackward &a;
    const Attention &shape;
    Scratch s;
    int64_t b, g;
    float *sums_d;  // D of all queries

    int64_t per_group() const { return shape.heads / shape.groups; }
    int64_t statistic(int64_t head, int64_t q) const { return (b * shape.heads + head) * shape.tokens.seq + q; }

    void pack_keys(int64_t k0, int64_t columns) {
        const Matrix k = head_of(shape, a.k, b, g, 0), v = head_of(shape, a.v, b, g, 0);
        pack_transposed(k, k0, columns, tile_k, 0, shape.d, s.wide, s.keys_turned, score_row);
        pack_transposed(v, k0, columns, tile_k, 0, shape.d, s.wide, s.values_turned, score_row);
    }
    void pack_queries(int64_t i, int64_t q0, int64_t rows, int64_t wide_rows) {
        pack(head_of(shape, a.q, b, g, i), q0, rows, wide_rows, 0, shape.d, s.wide, s.q, s.row);
        pack(head_of(shape, a.dcontext, b, g, i), q0, rows, wide_rows, 0, shape.d, s.wide, s.dcontext, s.row);
    }

    // s.ds = dS and s.p = dropout(P) of a tile whose queries and keys are packed; 0 where nothing is seen.
    void scores(int64_t head, int64_t q0, int64_t rows, int64_t wide_rows, int64_t k0, int64_t columns, const Seen &seen) {
        const auto scale = static_cast<float>(shape.scale);
        std::fill_n(s.p, wide_rows * score_row, 0.0f);
        std::fill_n(s.ds, wide_rows * score_row, 0.0f);
        product(wide_rows, tile_k, s.wide, s.q, s.row, 1, s.keys_turned, score_row, s.p, score_row);
        product(wide_rows, tile_k, s.wide, s.dcontext, s.row, 1, s.values_turned, score_row, s.ds, score_row);
        for (int64_t r = 0; r < wide_rows; ++r) {
            float *p = s.p + r * score_row, *ds = s.ds + r * score_row, factors[tile_k];
            const int64_t begin = r < rows ? seen.begin(r, k0, columns) : 0, end = r < rows ? seen.end(r, k0, columns) : 0;
            if (begin == end) {
                std::fill_n(p, tile_k, 0.0f);
                std::fill_n(ds, tile_k, 0.0f);
                continue;
            }
            const float lse = static_cast<const float *>(a.lse)[statistic(head, q0 + r)], d = sums_d[statistic(head, q0 + r)];
            for (int64_t j = 0; j < tile_k; ++j) p[j] = p[j] * scale - lse;
            exps(p, tile_k);
            std::fill(p, p + begin, 0.0f);
            std::fill(p + end, p + tile_k, 0.0f);
            if (shape.dropout.on) {
                draw(shape.dropout, probability_index(shape, b, head, q0 + r, k0), tile_k, factors);
                for (int64_t j = 0; j < tile_k; ++j) ds[j] = p[j] * (ds[j] * factors[j] - d);
                for (int64_t j = 0; j < tile_k; ++j) p[j] *= factors[j];
            } else {
                for (int64_t j = 0; j < tile_k; ++j) ds[j] = p[j] * (ds[j] - d);
            }
        }
    }

    void queries(int64_t i, int64_t q0) {
        const int64_t head = g * per_group() + i, rows = std::min(tile_q, shape.tokens.seq - q0), wide_rows = padded(rows, product_m);
        const Seen seen(shape.mask, q0, rows);
        pack_queries(i, q0, rows, wide_rows);
        // The context is read through the accumulator's place.
        pack(head_of(shape, a.context, b, g, i), q0, rows, rows, 0, shape.d, s.wide, s.first, s.row);
        for (int64_t r = 0; r < rows; ++r) sums_d[statistic(head, q0 + r)] = dot(s.dcontext + r * s.row, s.first + r * s.row, shape.d);
        std::fill_n(s.first, wide_rows * s.row, 0.0f);
        for (int64_t k0 = seen.low / tile_k * tile_k; k0 < seen.high; k0 += tile_k) {
            const int64_t columns = std::min(tile_k, shape.tokens.seq - k0);
            pack_keys(k0, columns);
            pack(head_of(shape, a.k, b, g, 0), k0, columns, tile_k, 0, shape.d, s.wide, s.keys, s.row);
            scores(head, q0, rows, wide_rows, k0, columns, seen);
            product(wide_rows, s.wide, tile_k, s.ds, score_row, 1, s.keys, s.row, s.first, s.row);
        }
        finish(a.dq, i, q0, rows, static_cast<float>(shape.scale), s.first);
    }

    void keys(int64_t k0) {
        const int64_t columns = std::min(tile_k, shape.tokens.seq - k0);
        pack_keys(k0, columns);
        std::fill_n(s.first, tile_k * s.row, 0.0f);
        std::fill_n(s.second, tile_k * s.row, 0.0f);
        for (int64_t i = 0; i < per_group(); ++i)
            for (int64_t q0 = 0; q0 < shape.tokens.seq; q0 += tile_q) {
                const int64_t rows = std::min(tile_q, shape.tokens.seq - q0), wide_rows = padded(rows, product_m);
                const Seen seen(shape.mask, q0, rows);
                if (seen.high <= k0 || seen.low >= k0 + columns) continue;
                pack_queries(i, q0, rows, wide_rows);
                scores(g * per_group() + i, q0, rows, wide_rows, k0, columns, seen);
                product(tile_k, s.wide, wide_rows, s.ds, 1, score_row, s.q, s.row, s.first, s.row);
                product(tile_k, s.wide, wide_rows, s.p, 1, score_row, s.dcontext, s.row, s.second, s.row);
            }
        finish(a.dk, 0, k0, columns, static_cast<float>(shape.scale), s.first);
        finish(a.dv, 0, k0, columns, 1.0f, s.second);
    }

    void finish(const Heads &to, int64_t i, int64_t s0, int64_t rows, float factor, float *sums) {
        for (int64_t r = 0; r < rows; ++r) {
            float *row = sums + r * s.row;
            for (int64_t c = 0; c < shape.d; ++c) row[c] *= factor;
            write_row(shape, to, b, g, i, s0 + r, shape.d, row);
        }
    }
};

}  // namespace

void attention_backward(Pool &pool, const AttentionBackward &a) {
    const Attention &shape = a.shape;
    const int64_t tiles = ceil_div(shape.tokens.seq, tile_q), heads = shape.heads, groups = shape.groups, per_group = heads / groups;
    const int64_t stride = scratch_floats(shape.d);
    float *sums_d = static_cast<float *>(a.workspace), *scratch = sums_d + rounded(shape.tokens.rows() * heads * 4) / 4;
    pool.each(shape.tokens.batch * heads * tiles, [&](int64_t i, int32_t worker) {
        const int64_t head = i / tiles % heads;
        Task task{a, shape, Scratch(shape.d, scratch + worker * stride), i / tiles / heads, head / per_group, sums_d};
        task.queries(head % per_group, i % tiles * tile_q);
    });
    pool.each(shape.tokens.batch * groups * tiles, [&](int64_t i, int32_t worker) {
        Task task{a, shape, Scratch(shape.d, scratch + worker * stride), i / tiles / groups, i / tiles % groups, sums_d};
        task.keys(i % tiles * tile_k);
    });
}

int64_t attention_backward_workspace(const KernelSize &s, int32_t threads) {
    return add(rounded(mul(mul(s.rows, s.heads), sizeof(float))), mul(mul(scratch_floats(s.d), sizeof(float)), threads));
}

}  // namespace mdlm::cpu

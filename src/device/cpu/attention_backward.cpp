// SPDX-License-Identifier: Apache-2.0
// Fused attention, backward. P = exp(scale q k^T - row_max) inverse_sum; D = rowsum(dcontext * context); dP =
// dropout(dcontext v^T); dS = P (dP - D); dq = scale dS k; dk = scale dS^T q; dv = dropout(P)^T dcontext.
//
// Where whole groups of heads keep all threads busy, a task is a group: it walks runs of several tiles of keys and, for
// each run, the tiles of queries, makes P and dS once, and adds up dq in float as it goes. Else two passes make P and
// dS twice, so that tasks can be smaller: dq by tiles of queries, then dk and dv by runs of tiles of keys. Both sum
// every element over the same tiles in the same order: not a bit differs.
#include "device/cpu/attention_rows.hpp"
#include "device/cpu/kernels.hpp"
#include "device/cpu/masked_products.hpp"
#include "device/cpu/tasks.hpp"

namespace mdlm::cpu {
namespace {

constexpr int64_t most_tiles = 4;  // of a run

// Scratch of one thread, in floats. What is of keys is there for each tile of a run.
struct Scratch {
    int64_t wide, row, tile, transposed;
    float *q, *dcontext, *dq, *p, *ds, *factors, *keys, *dk, *dv, *keys_transposed, *values_transposed;
    Scratch(int64_t d, float *base)
        : wide(padded(d, product_n)), row(row_of(d)), tile(tile_k * row), transposed(wide * score_row), q(base),
          dcontext(q + tile_q * row), dq(dcontext + tile_q * row), p(dq + tile_q * row), ds(p + tile_q * score_row),
          factors(ds + tile_q * score_row), keys(factors + tile_q * score_row), dk(keys + most_tiles * tile),
          dv(dk + most_tiles * tile), keys_transposed(dv + most_tiles * tile),
          values_transposed(keys_transposed + most_tiles * transposed) {}
    static int64_t floats(int64_t d) {
        return 3 * tile_q * (row_of(d) + score_row) +
               most_tiles * (3 * tile_k * row_of(d) + 2 * padded(d, product_n) * score_row);
    }
};

int64_t in_floats(int64_t bytes) { return rounded(bytes) / int64_t{sizeof(float)}; }
int64_t scratch_floats(int64_t d) { return in_floats(mul(Scratch::floats(d), sizeof(float))); }

struct BackwardTask {
    const AttentionBackward &a;
    const Attention &shape;
    ScoreScale score_scale;
    Scratch s;
    int64_t b, g;
    float *sums_d;  // D of all queries

    int64_t seq() const { return shape.tokens.seq; }
    int64_t per_group() const { return shape.heads / shape.groups; }
    int64_t rows_at(int64_t q0) const { return std::min(tile_q, seq() - q0); }
    int64_t columns_at(int64_t k0) const { return std::min(tile_k, seq() - k0); }
    int64_t statistic(int64_t i, int64_t q) const { return (b * shape.heads + g * per_group() + i) * seq() + q; }

    void pack_keys(int64_t t, int64_t k0, bool plainly) {
        const Matrix k = head_of(shape, a.k, b, g, 0), v = head_of(shape, a.v, b, g, 0);
        const int64_t columns = columns_at(k0);
        pack_transposed(k, k0, columns, padded(columns, product_n), 0, shape.d, shape.d,
                        s.keys_transposed + t * s.transposed, score_row);
        pack_transposed(v, k0, columns, padded(columns, product_n), 0, shape.d, shape.d,
                        s.values_transposed + t * s.transposed, score_row);
        if (plainly) pack(k, k0, columns, columns, 0, shape.d, s.wide, s.keys + t * s.tile, s.row);
    }
    void pack_queries(int64_t i, int64_t q0) {
        const int64_t rows = rows_at(q0), all = padded(rows, product_m);
        pack(head_of(shape, a.q, b, g, i), q0, rows, all, 0, shape.d, s.wide, s.q, s.row);
        scale_rows(s.q, rows, shape.d, s.row, score_scale.query);
        pack(head_of(shape, a.dcontext, b, g, i), q0, rows, all, 0, shape.d, s.wide, s.dcontext, s.row);
    }
    void find_d(int64_t i, int64_t q0) {
        float context[max_span], gradient[max_span];
        const Matrix c = head_of(shape, a.context, b, g, i), dc = head_of(shape, a.dcontext, b, g, i);
        for (int64_t r = 0; r < rows_at(q0); ++r) {
            prefetch_ahead(c, q0 + r, q0 + rows_at(q0), shape.d);
            prefetch_ahead(dc, q0 + r, q0 + rows_at(q0), shape.d);
            float total = 0.0f;
            for (int64_t from = 0; from < shape.d; from += max_span) {
                const int64_t n = std::min(max_span, shape.d - from);
                read(shape.dtype, c.base, c.offset + (q0 + r) * c.row + from, n, context);
                read(shape.dtype, dc.base, dc.offset + (q0 + r) * dc.row + from, n, gradient);
                total += dot(context, gradient, n);
            }
            sums_d[statistic(i, q0 + r)] = total;
        }
    }

    // s.ds = dS and s.p = dropout(P) of queries that are packed and tile t of keys; 0 where nothing is seen.
    void scores(int64_t i, int64_t q0, int64_t t, int64_t k0, const Intervals &seen) {
        const int64_t rows = seen.rows, columns = seen.columns, at = statistic(i, q0);
        product(rows, columns, shape.d, s.q, s.row, 1, s.keys_transposed + t * s.transposed, score_row, s.p, score_row,
                false);
        product(rows, columns, shape.d, s.dcontext, s.row, 1, s.values_transposed + t * s.transposed, score_row, s.ds,
                score_row, false);
        for (int64_t r = 0; shape.dropout.on && r < rows; ++r)
            draw(shape.dropout, probability_index(shape, b, g * per_group() + i, q0 + r, k0),
                 padded(columns, product_n), s.factors + r * score_row);
        score_gradients(seen, s.p, static_cast<const float *>(a.row_max) + at,
                        static_cast<const float *>(a.inverse_sum) + at, sums_d + at,
                        shape.dropout.on ? s.factors : nullptr, s.ds);
    }
    void add_queries(const Intervals &seen, int64_t t, bool add) {
        sum_over_keys(seen, s.ds, score_row, s.keys + t * s.tile, s.row, shape.d, s.dq, s.row, add);
    }
    void add_keys(const Intervals &seen, int64_t t, bool add) {
        if (a.dk.base != nullptr)
            sum_over_queries(seen, s.ds, score_row, s.q, s.row, shape.d, s.dk + t * s.tile, s.row, add);
        if (a.dv.base != nullptr)
            sum_over_queries(seen, s.p, score_row, s.dcontext, s.row, shape.d, s.dv + t * s.tile, s.row, add);
    }

    // Pass 1.
    void queries(int64_t i, int64_t q0) {
        const VisibleKeys seen(shape.mask, q0, rows_at(q0));
        pack_queries(i, q0);
        find_d(i, q0);
        bool add = false;
        for (int64_t k0 = seen.low / tile_k * tile_k; k0 < seen.high; k0 += tile_k, add = true) {
            const Intervals inside(seen, rows_at(q0), k0, columns_at(k0));
            pack_keys(0, k0, true);
            scores(i, q0, 0, k0, inside);
            add_queries(inside, 0, add);
        }
        write_tile(a.dq, i, q0, rows_at(q0), s.dq, query_factor());
    }
    // Pass 2, a run of tiles of keys from k0 on; with sums of dq the only one.
    void keys(int64_t k0, int64_t tiles, const Heads *dq) {
        bool begun[most_tiles] = {};
        for (int64_t t = 0; t < tiles; ++t) pack_keys(t, k0 + t * tile_k, dq != nullptr);
        const int64_t end = k0 + tiles * tile_k;
        for (int64_t i = 0; i < per_group(); ++i)
            for (int64_t q0 = 0; q0 < seq(); q0 += tile_q) {
                const VisibleKeys seen(shape.mask, q0, rows_at(q0));
                if (seen.high <= k0 || seen.low >= end) continue;
                pack_queries(i, q0);
                if (dq != nullptr && k0 > seen.low) read_sums(*dq, i, q0);
                for (int64_t t = 0; t < tiles; ++t) {
                    const int64_t at = k0 + t * tile_k;
                    if (seen.high <= at || seen.low >= at + tile_k) continue;
                    const Intervals inside(seen, rows_at(q0), at, columns_at(at));
                    scores(i, q0, t, at, inside);
                    add_keys(inside, t, begun[t]);
                    begun[t] = true;
                    if (dq != nullptr) add_queries(inside, t, at > seen.low);
                }
                if (dq == nullptr) continue;
                if (end >= seen.high) write_tile(a.dq, i, q0, rows_at(q0), s.dq, query_factor());
                else write_sums(*dq, i, q0);
            }
        for (int64_t t = 0; t < tiles; ++t) {
            write_tile(a.dk, 0, k0 + t * tile_k, columns_at(k0 + t * tile_k), s.dk + t * s.tile,
                       static_cast<float>(score_scale.key));
            write_tile(a.dv, 0, k0 + t * tile_k, columns_at(k0 + t * tile_k), s.dv + t * s.tile, 1.0f);
        }
    }
    void group(const Heads *dq) {
        for (int64_t i = 0; i < per_group(); ++i)
            for (int64_t q0 = 0; q0 < seq(); q0 += tile_q) find_d(i, q0);
        for (int64_t k0 = 0; k0 < seq(); k0 += most_tiles * tile_k)
            keys(k0, std::min(most_tiles, ceil_div(seq() - k0, tile_k)), dq);
    }

    // Sums of dq between two runs.
    float *sums_at(const Heads &dq, int64_t i, int64_t q) const {
        const Matrix m = head_of(shape, dq, b, g, i);
        return static_cast<float *>(dq.base) + m.offset + q * m.row;
    }
    void read_sums(const Heads &dq, int64_t i, int64_t q0) {
        for (int64_t r = 0; r < rows_at(q0); ++r) std::copy_n(sums_at(dq, i, q0 + r), shape.d, s.dq + r * s.row);
    }
    void write_sums(const Heads &dq, int64_t i, int64_t q0) {
        for (int64_t r = 0; r < rows_at(q0); ++r) std::copy_n(s.dq + r * s.row, shape.d, sums_at(dq, i, q0 + r));
    }
    float query_factor() const { return static_cast<float>(shape.scale); }
    void write_tile(const Heads &to, int64_t i, int64_t s0, int64_t rows, float *sums, float factor) {
        if (to.base == nullptr) return;
        const Matrix m = head_of(shape, to, b, g, i);
        for (int64_t r = 0; r < rows; ++r) {
            float *row = sums + r * s.row;
            prefetch_ahead<true>(m, s0 + r, s0 + rows, shape.d);
            for (int64_t c = 0; c < shape.d; ++c) row[c] = unsigned_zero(row[c] * factor);
            write(shape.dtype, to.base, m.offset + (s0 + r) * m.row, shape.d, row);
        }
    }
};

// Two passes make 7 products of a pair of tiles instead of 5, but can be spread more evenly.
bool by_groups(int64_t groups, int64_t threads) { return 4 * ceil_div(groups, threads) * threads <= 5 * groups; }

// Sums of dq need a place of their own unless dq itself holds floats.
int64_t sums_floats(DType dtype, int64_t rows, int64_t heads, int64_t d) {
    return dtype == DType::f32 ? 0 : in_floats(mul(mul(mul(rows, heads), d), sizeof(float)));
}

}  // namespace

void attention_backward(Pool &pool, const AttentionBackward &a) {
    const Attention &shape = a.shape;
    const int64_t tiles = ceil_div(shape.tokens.seq, tile_q), heads = shape.heads, groups = shape.groups,
                  per_group = heads / groups;
    const int64_t rows = shape.tokens.rows(), all_groups = shape.tokens.batch * groups,
                  stride = scratch_floats(shape.d);
    float *sums_d = static_cast<float *>(a.workspace), *sums_dq = sums_d + in_floats(rows * heads * 4);
    float *scratch = sums_dq + sums_floats(shape.dtype, rows, heads, shape.d);
    const auto task = [&](int64_t group, int32_t worker) {
        return BackwardTask{a,
                            shape,
                            ScoreScale(shape.scale),
                            Scratch(shape.d, scratch + worker * stride),
                            group / groups,
                            group % groups,
                            sums_d};
    };
    const bool of_queries = a.dq.base != nullptr, of_keys = a.dk.base != nullptr || a.dv.base != nullptr;
    if (of_keys && by_groups(all_groups, pool.size())) {
        const Heads dq =
            shape.dtype == DType::f32 ? a.dq : Heads{sums_dq, heads * shape.d, per_group * shape.d, shape.d};
        pool.parallel_for(all_groups,
                          [&](int64_t i, int32_t worker) { task(i, worker).group(of_queries ? &dq : nullptr); });
        return;
    }
    pool.parallel_for(shape.tokens.batch * heads * tiles, [&](int64_t i, int32_t worker) {
        const int64_t head = i / tiles, q0 = i % tiles * tile_q;
        BackwardTask of = task(head / per_group, worker);
        of_queries ? of.queries(head % per_group, q0) : of.find_d(head % per_group, q0);
    });
    if (!of_keys) return;
    int64_t each = most_tiles;
    while (each > 1 && all_groups * ceil_div(tiles, each) < 4 * pool.size()) each /= 2;
    const int64_t runs = ceil_div(tiles, each);
    pool.parallel_for(all_groups * runs, [&](int64_t i, int32_t worker) {
        const int64_t first = i % runs * each;
        task(i / runs, worker).keys(first * tile_k, std::min(each, tiles - first), nullptr);
    });
}

int64_t attention_backward_workspace(const KernelSize &s, int32_t threads) {
    const int64_t statistics = rounded(mul(mul(s.rows, s.heads), sizeof(float)));
    const int64_t dq = mul(sums_floats(s.dtype, s.rows, s.heads, s.d), sizeof(float));
    return add(add(statistics, dq), mul(mul(scratch_floats(s.d), sizeof(float)), threads));
}

}  // namespace mdlm::cpu

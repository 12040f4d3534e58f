// Fused attention, backward. P = exp(scale q k^T - lse); D = rowsum(dcontext * context); dP = dropout(dcontext v^T); dS = P (dP - D);
// dq = scale dS k; dk = scale dS^T q; dv = dropout(P)^T dcontext.
//
// Where there are groups of heads enough for all threads, a task is a group: it walks the tiles of keys and, for each, the tiles of
// queries, makes P and dS once, and adds up dq in float as it goes. Else two passes make P and dS twice, so that tasks can be tiles: dq by
// tiles of queries, then dk and dv by tiles of keys. Both sum every element over the same tiles in the same order: not a bit differs.
#include "device/cpu/attention_rows.hpp"
#include "device/cpu/kernels.hpp"
#include "device/cpu/tasks.hpp"

namespace mdlm::cpu {
namespace {

// Scratch of one thread, in floats.
struct Scratch {
    int64_t wide, row;
    float *q, *dcontext, *keys, *keys_turned, *values_turned, *first, *second, *p, *ds, *factors;
    Scratch(int64_t d, float *base)
        : wide(padded(d, product_n)), row(row_of(d)), q(base), dcontext(q + tile_q * row), keys(dcontext + tile_q * row),
          keys_turned(keys + tile_k * row), values_turned(keys_turned + wide * score_row), first(values_turned + wide * score_row),
          second(first + tile_k * row), p(second + tile_k * row), ds(p + tile_q * score_row), factors(ds + tile_q * score_row) {}
    static int64_t floats(int64_t d) {
        return (2 * tile_q + 3 * tile_k) * row_of(d) + 2 * padded(d, product_n) * score_row + 3 * tile_q * score_row;
    }
};
static_assert(tile_q == tile_k, "the accumulators first and second hold either");

int64_t in_floats(int64_t bytes) { return rounded(bytes) / int64_t{sizeof(float)}; }
int64_t scratch_floats(int64_t d) { return in_floats(mul(Scratch::floats(d), sizeof(float))); }

struct Task {
    const AttentionBackward &a;
    const Attention &shape;
    Scratch s;
    int64_t b, g;
    float *sums_d;  // D of all queries

    int64_t seq() const { return shape.tokens.seq; }
    int64_t per_group() const { return shape.heads / shape.groups; }
    int64_t rows_at(int64_t q0) const { return std::min(tile_q, seq() - q0); }
    int64_t columns_at(int64_t k0) const { return std::min(tile_k, seq() - k0); }
    int64_t statistic(int64_t i, int64_t q) const { return (b * shape.heads + g * per_group() + i) * seq() + q; }

    void pack_keys(int64_t k0, bool plainly) {
        const Matrix k = head_of(shape, a.k, b, g, 0), v = head_of(shape, a.v, b, g, 0);
        const int64_t columns = columns_at(k0);
        pack_transposed(k, k0, columns, padded(columns, product_n), 0, shape.d, shape.d, s.keys_turned, score_row);
        pack_transposed(v, k0, columns, padded(columns, product_n), 0, shape.d, shape.d, s.values_turned, score_row);
        if (plainly) pack(k, k0, columns, columns, 0, shape.d, s.wide, s.keys, s.row);
    }
    void pack_queries(int64_t i, int64_t q0) {
        const int64_t rows = rows_at(q0), all = padded(rows, product_m);
        pack(head_of(shape, a.q, b, g, i), q0, rows, all, 0, shape.d, s.wide, s.q, s.row);
        pack(head_of(shape, a.dcontext, b, g, i), q0, rows, all, 0, shape.d, s.wide, s.dcontext, s.row);
    }
    void find_d(int64_t i, int64_t q0) {
        float context[span], gradient[span];
        const Matrix c = head_of(shape, a.context, b, g, i), dc = head_of(shape, a.dcontext, b, g, i);
        for (int64_t r = 0; r < rows_at(q0); ++r) {
            float total = 0.0f;
            for (int64_t from = 0; from < shape.d; from += span) {
                const int64_t n = std::min(span, shape.d - from);
                read(shape.dtype, c.base, c.offset + (q0 + r) * c.row + from, n, context);
                read(shape.dtype, dc.base, dc.offset + (q0 + r) * dc.row + from, n, gradient);
                total += dot(context, gradient, n);
            }
            sums_d[statistic(i, q0 + r)] = total;
        }
    }

    // s.ds = dS and s.p = dropout(P) of a tile whose queries and keys are packed; 0 where nothing is seen.
    void scores(int64_t i, int64_t q0, int64_t k0, const Seen &seen) {
        const int64_t rows = rows_at(q0), columns = columns_at(k0);
        product(rows, columns, shape.d, s.q, s.row, 1, s.keys_turned, score_row, s.p, score_row, false);
        product(rows, columns, shape.d, s.dcontext, s.row, 1, s.values_turned, score_row, s.ds, score_row, false);
        for (int64_t r = 0; shape.dropout.on && r < rows; ++r)
            draw(shape.dropout, probability_index(shape, b, g * per_group() + i, q0 + r, k0), padded(columns, product_n), s.factors + r * score_row);
        score_gradients(ScoreTile(s.p, seen, rows, k0, columns), static_cast<float>(shape.scale),
                        static_cast<const float *>(a.lse) + statistic(i, q0), sums_d + statistic(i, q0),
                        shape.dropout.on ? s.factors : nullptr, s.ds);
    }
    void add_keys(int64_t q0, int64_t k0, bool add) {
        const int64_t rows = rows_at(q0), columns = columns_at(k0);
        product(columns, shape.d, rows, s.ds, 1, score_row, s.q, s.row, s.first, s.row, add);
        product(columns, shape.d, rows, s.p, 1, score_row, s.dcontext, s.row, s.second, s.row, add);
    }

    // Pass 1.
    void queries(int64_t i, int64_t q0) {
        const Seen seen(shape.mask, q0, rows_at(q0));
        pack_queries(i, q0);
        find_d(i, q0);
        bool add = false;
        for (int64_t k0 = seen.low / tile_k * tile_k; k0 < seen.high; k0 += tile_k, add = true) {
            pack_keys(k0, true);
            scores(i, q0, k0, seen);
            product(rows_at(q0), shape.d, columns_at(k0), s.ds, score_row, 1, s.keys, s.row, s.first, s.row, add);
        }
        write_tile(a.dq, i, q0, rows_at(q0), static_cast<float>(shape.scale), s.first);
    }
    // Pass 2; with dq, [per_group, seq, d], the only one.
    void keys(int64_t k0, float *dq) {
        pack_keys(k0, dq != nullptr);
        bool add = false;
        for (int64_t i = 0; i < per_group(); ++i)
            for (int64_t q0 = 0; q0 < seq(); q0 += tile_q) {
                const Seen seen(shape.mask, q0, rows_at(q0));
                if (seen.high <= k0 || seen.low >= k0 + tile_k) continue;
                pack_queries(i, q0);
                scores(i, q0, k0, seen);
                add_keys(q0, k0, add);
                add = true;
                if (dq != nullptr) add_queries(dq + i * seq() * shape.d, q0, k0, k0 > seen.low);
            }
        write_tile(a.dk, 0, k0, columns_at(k0), static_cast<float>(shape.scale), s.first);
        write_tile(a.dv, 0, k0, columns_at(k0), 1.0f, s.second);
    }
    void add_queries(float *dq, int64_t q0, int64_t k0, bool add) {
        // The tile of queries is not needed any more: its place takes the product.
        product(rows_at(q0), shape.d, columns_at(k0), s.ds, score_row, 1, s.keys, s.row, s.q, s.row, false);
        for (int64_t r = 0; r < rows_at(q0); ++r) {
            float *to = dq + (q0 + r) * shape.d;
            const float *from = s.q + r * s.row;
            if (add)
                for (int64_t c = 0; c < shape.d; ++c) to[c] += from[c];
            else std::copy_n(from, shape.d, to);
        }
    }
    void group(float *dq) {
        for (int64_t i = 0; i < per_group(); ++i)
            for (int64_t q0 = 0; q0 < seq(); q0 += tile_q) find_d(i, q0);
        for (int64_t k0 = 0; k0 < seq(); k0 += tile_k) keys(k0, dq);
        for (int64_t i = 0; i < per_group(); ++i)
            for (int64_t q = 0; q < seq(); ++q) write_scaled(a.dq, i, q, static_cast<float>(shape.scale), dq + (i * seq() + q) * shape.d);
    }

    void write_tile(const Heads &to, int64_t i, int64_t s0, int64_t rows, float factor, float *sums) {
        for (int64_t r = 0; r < rows; ++r) write_scaled(to, i, s0 + r, factor, sums + r * s.row);
    }
    void write_scaled(const Heads &to, int64_t i, int64_t at, float factor, float *row) {
        for (int64_t c = 0; c < shape.d; ++c) row[c] *= factor;
        write_row(shape, to, b, g, i, at, shape.d, row);
    }
};

}  // namespace

void attention_backward(Pool &pool, const AttentionBackward &a) {
    const Attention &shape = a.shape;
    const int64_t tiles = ceil_div(shape.tokens.seq, tile_q), heads = shape.heads, groups = shape.groups, per_group = heads / groups;
    const int64_t rows = shape.tokens.rows(), all_groups = shape.tokens.batch * groups, stride = scratch_floats(shape.d);
    float *sums_d = static_cast<float *>(a.workspace), *dq = sums_d + in_floats(rows * heads * 4);
    float *scratch = dq + in_floats(rows * heads * shape.d * 4);
    const auto task = [&](int64_t group, int32_t worker) {
        return Task{a, shape, Scratch(shape.d, scratch + worker * stride), group / groups, group % groups, sums_d};
    };
    // Fewer rounds of whole groups than tiles would keep the threads busy for.
    if (pool.size() == 1 || all_groups >= 4 * pool.size()) {
        const int64_t each = per_group * shape.tokens.seq * shape.d;
        pool.each(all_groups, [&](int64_t i, int32_t worker) { task(i, worker).group(dq + i * each); });
        return;
    }
    pool.each(shape.tokens.batch * heads * tiles, [&](int64_t i, int32_t worker) {
        const int64_t head = i / tiles;
        task(head / per_group, worker).queries(head % per_group, i % tiles * tile_q);
    });
    pool.each(all_groups * tiles, [&](int64_t i, int32_t worker) { task(i / tiles, worker).keys(i % tiles * tile_k, nullptr); });
}

int64_t attention_backward_workspace(const KernelSize &s, int32_t threads) {
    const int64_t statistics = rounded(mul(mul(s.rows, s.heads), sizeof(float)));
    const int64_t dq = rounded(mul(mul(mul(s.rows, s.heads), s.d), sizeof(float)));
    return add(add(statistics, dq), mul(mul(scratch_floats(s.d), sizeof(float)), threads));
}

}  // namespace mdlm::cpu

// The norm of each query and key head over its channels, then rotary. A head is walked in pieces: the two channels of each rotary pair
// side by side in two spans (halves, or even and odd), and the channels that do not turn in one.
// The loops are plain; the compiler makes vectors of them for each instruction set.
#include "device/cpu/targets.hpp"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "device/cpu/qk_norm_rope.cpp"
#include "hwy/foreach_target.h"

#include <cmath>
#include <cstring>

#include "device/cpu/kernels.hpp"
#include "device/cpu/spans.hpp"
#include "device/cpu/tasks.hpp"
#include "hwy/highway.h"

HWY_BEFORE_NAMESPACE();
namespace mdlm::cpu::HWY_NAMESPACE {
namespace rope {

// Channels first + j * stride, and with `two` second + j * stride, for j < n.
struct Piece {
    int64_t first, second, stride, n;
    bool two;
};

template <class Body>
void pieces(const QkNormRope &a, Body &&body) {
    const int64_t half = a.rotary_dim / 2;
    for (int64_t i = 0; i < half; i += span) {
        const int64_t n = std::min(span, half - i);
        body(a.interleaved ? Piece{2 * i, 2 * i + 1, 2, n, true} : Piece{i, half + i, 1, n, true});
    }
    for (int64_t c = a.rotary_dim; c < a.d; c += span) body(Piece{c, 0, 1, std::min(span, a.d - c), false});
}

struct Pair {
    float a[span], b[span];
};

void read_piece(DType type, const void *base, int64_t offset, const Piece &p, Pair &out) {
    if (p.stride == 1) {
        read(type, base, offset + p.first, p.n, out.a);
        if (p.two) read(type, base, offset + p.second, p.n, out.b);
        return;
    }
    float both[2 * span];
    read(type, base, offset + p.first, 2 * p.n, both);
    for (int64_t j = 0; j < p.n; ++j) {
        out.a[j] = both[2 * j];
        out.b[j] = both[2 * j + 1];
    }
}

void write_piece(DType type, void *base, int64_t offset, const Piece &p, const Pair &in) {
    if (p.stride == 1) {
        write(type, base, offset + p.first, p.n, in.a);
        if (p.two) write(type, base, offset + p.second, p.n, in.b);
        return;
    }
    float both[2 * span];
    for (int64_t j = 0; j < p.n; ++j) {
        both[2 * j] = in.a[j];
        both[2 * j + 1] = in.b[j];
    }
    write(type, base, offset + p.first, 2 * p.n, both);
}

// Turns by the angle of the position; backward turns back.
void rotate(const QkNormRope &a, int64_t position, const Piece &p, bool back, Pair &x) {
    if (!p.two) return;
    const int64_t half = a.rotary_dim / 2, from = position * half + p.first / p.stride;
    const float *cosine = static_cast<const float *>(a.cos) + from, *sine = static_cast<const float *>(a.sin) + from;
    const float sign = back ? -1.0f : 1.0f;
    for (int64_t j = 0; j < p.n; ++j) {
        const float u = x.a[j], v = x.b[j], s = sign * sine[j];
        x.a[j] = u * cosine[j] - v * s;
        x.b[j] = v * cosine[j] + u * s;
    }
}

// One kind of heads: queries or keys.
struct Kind {
    Heads in, out;             // backward: x, dx
    const void *weight, *bias;
    float *rstd, *mean;
    int64_t per_group;
    Heads gradient;            // backward: of what the forward made
    float *dweight, *dbias;    // backward: this chunk's sums, or null
};

int64_t place(const Heads &h, int64_t row, int64_t group, int64_t i) {
    return row * h.row_stride + group * h.group_stride + i * h.head_stride;
}

void apply(float *x, const float *w, int64_t n, bool zero_centered) {
    for (int64_t j = 0; j < n; ++j) x[j] *= zero_centered ? 1.0f + w[j] : w[j];
}

void forward_head(const QkNormRope &a, const Kind &k, int64_t row, int64_t position, int64_t group, int64_t i, int64_t stat) {
    const int64_t from = place(k.in, row, group, i), to = place(k.out, row, group, i);
    float mean = 0.0f, rstd = 1.0f, x[span];
    if (a.norm) {
        double total = 0.0, squares = 0.0;
        for (int64_t c = 0; c < a.d && !a.rms; c += span) {
            const int64_t n = std::min(span, a.d - c);
            read(a.dtype, k.in.base, from + c, n, x);
            total += sum(x, n);
        }
        mean = static_cast<float>(total / static_cast<double>(a.d));
        for (int64_t c = 0; c < a.d; c += span) {
            const int64_t n = std::min(span, a.d - c);
            read(a.dtype, k.in.base, from + c, n, x);
            for (int64_t j = 0; j < n; ++j) x[j] -= mean;
            squares += dot(x, x, n);
        }
        rstd = static_cast<float>(1.0 / std::sqrt(squares / static_cast<double>(a.d) + a.epsilon));
        k.rstd[stat] = rstd;
        if (k.mean != nullptr) k.mean[stat] = mean;
    }
    pieces(a, [&](const Piece &p) {
        Pair v, w;
        read_piece(a.dtype, k.in.base, from, p, v);
        for (float *part : {v.a, p.two ? v.b : nullptr})
            for (int64_t j = 0; part != nullptr && a.norm && j < p.n; ++j) part[j] = (part[j] - mean) * rstd;
        if (k.weight != nullptr) {
            read_piece(a.dtype, k.weight, 0, p, w);
            apply(v.a, w.a, p.n, a.zero_centered);
            if (p.two) apply(v.b, w.b, p.n, a.zero_centered);
        }
        if (k.bias != nullptr) {
            read_piece(a.dtype, k.bias, 0, p, w);
            for (int64_t j = 0; j < p.n; ++j) v.a[j] += w.a[j];
            for (int64_t j = 0; p.two && j < p.n; ++j) v.b[j] += w.b[j];
        }
        rotate(a, position, p, false, v);
        write_piece(a.dtype, k.out.base, to, p, v);
    });
}

void backward_head(const QkNormRope &a, const Kind &k, int64_t row, int64_t position, int64_t group, int64_t i, int64_t stat) {
    const int64_t from = place(k.gradient, row, group, i), to = place(k.out, row, group, i);
    const int64_t at_x = place(k.in, row, group, i);
    if (!a.norm) {
        pieces(a, [&](const Piece &p) {
            Pair g;
            read_piece(a.dtype, k.gradient.base, from, p, g);
            rotate(a, position, p, true, g);
            write_piece(a.dtype, k.out.base, to, p, g);
        });
        return;
    }
    const float rstd = k.rstd[stat], mean = k.mean != nullptr ? k.mean[stat] : 0.0f;
    // dy: gradient of the norm's output; x: xhat
    const auto load = [&](const Piece &p, Pair &dy, Pair &x) {
        read_piece(a.dtype, k.gradient.base, from, p, dy);
        rotate(a, position, p, true, dy);
        read_piece(a.dtype, k.in.base, at_x, p, x);
        for (int64_t j = 0; j < p.n; ++j) x.a[j] = (x.a[j] - mean) * rstd;
        for (int64_t j = 0; p.two && j < p.n; ++j) x.b[j] = (x.b[j] - mean) * rstd;
    };
    const auto weigh = [&](const Piece &p, Pair &dy) {
        Pair w;
        read_piece(a.dtype, k.weight, 0, p, w);
        apply(dy.a, w.a, p.n, a.zero_centered);
        if (p.two) apply(dy.b, w.b, p.n, a.zero_centered);
    };
    double along_x = 0.0, along_1 = 0.0;
    pieces(a, [&](const Piece &p) {
        Pair dy, x;
        load(p, dy, x);
        for (int64_t j = 0; j < p.n; ++j) {
            const int64_t c = p.first + j * p.stride, e = p.second + j * p.stride;
            if (k.dweight != nullptr) k.dweight[c] += dy.a[j] * x.a[j];
            if (k.dbias != nullptr) k.dbias[c] += dy.a[j];
            if (k.dweight != nullptr && p.two) k.dweight[e] += dy.b[j] * x.b[j];
            if (k.dbias != nullptr && p.two) k.dbias[e] += dy.b[j];
        }
        weigh(p, dy);
        along_x += dot(dy.a, x.a, p.n) + (p.two ? dot(dy.b, x.b, p.n) : 0.0f);
        if (!a.rms) along_1 += sum(dy.a, p.n) + (p.two ? sum(dy.b, p.n) : 0.0f);
    });
    const auto mean_gx = static_cast<float>(along_x / static_cast<double>(a.d));
    const auto mean_g = static_cast<float>(along_1 / static_cast<double>(a.d));
    pieces(a, [&](const Piece &p) {
        Pair dy, x;
        load(p, dy, x);
        weigh(p, dy);
        for (int64_t j = 0; j < p.n; ++j) dy.a[j] = rstd * (dy.a[j] - mean_g - x.a[j] * mean_gx);
        for (int64_t j = 0; p.two && j < p.n; ++j) dy.b[j] = rstd * (dy.b[j] - mean_g - x.b[j] * mean_gx);
        write_piece(a.dtype, k.out.base, to, p, dy);
    });
}

// Calls body(kind, row, position, group, head of the group, index of its statistics) for all heads of rows [begin, end).
template <class Body>
void heads_of(const QkNormRope &a, int64_t begin, int64_t end, const Kind &q, const Kind &k, Body &&body) {
    for (int64_t row = begin; row < end; ++row) {
        const int64_t s = a.tokens.batch_first ? row % a.tokens.seq : row / a.tokens.batch, position = a.mask.position(s);
        for (int64_t g = 0; g < a.groups; ++g) {
            for (int64_t i = 0; i < q.per_group; ++i) body(q, row, position, g, i, row * a.heads + g * q.per_group + i);
            body(k, row, position, g, 0, row * a.groups + g);
        }
    }
}

Kind kind(const QkNormRope &a, bool queries) {
    if (queries)
        return {a.q, a.q_out, a.q_weight, a.q_bias, static_cast<float *>(a.q_rstd), static_cast<float *>(a.q_mean), a.heads / a.groups,
                {}, nullptr, nullptr};
    return {a.k, a.k_out, a.k_weight, a.k_bias, static_cast<float *>(a.k_rstd), static_cast<float *>(a.k_mean), 1, {}, nullptr, nullptr};
}

}  // namespace rope

void qk_norm_rope_rows(const QkNormRope &a, int64_t begin, int64_t end) {
    rope::heads_of(a, begin, end, rope::kind(a, true), rope::kind(a, false),
                   [&](const rope::Kind &of, int64_t row, int64_t position, int64_t g, int64_t i, int64_t stat) {
                       rope::forward_head(a, of, row, position, g, i, stat);
                   });
}

// sums: of dq_weight, dq_bias, dk_weight, dk_bias over the rows, or null.
void qk_norm_rope_backward_rows(const QkNormRopeBackward &b, int64_t begin, int64_t end, float *const *sums) {
    const QkNormRope &a = b.forward;
    rope::Kind q = rope::kind(a, true), k = rope::kind(a, false);
    q.gradient = b.dq_out, q.out = b.dq, q.dweight = sums[0], q.dbias = sums[1];
    k.gradient = b.dk_out, k.out = b.dk, k.dweight = sums[2], k.dbias = sums[3];
    rope::heads_of(a, begin, end, q, k, [&](const rope::Kind &of, int64_t row, int64_t position, int64_t g, int64_t i, int64_t stat) {
        rope::backward_head(a, of, row, position, g, i, stat);
    });
}

}  // namespace mdlm::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace mdlm::cpu {
namespace {
HWY_EXPORT(qk_norm_rope_rows);
HWY_EXPORT(qk_norm_rope_backward_rows);
}  // namespace

void qk_norm_rope(Pool &pool, const QkNormRope &a) {
    parts(pool, a.tokens.rows(), (a.heads + a.groups) * a.d,
          [&](int64_t begin, int64_t end, int32_t) { HWY_DYNAMIC_DISPATCH(qk_norm_rope_rows)(a, begin, end); });
}

void qk_norm_rope_backward(Pool &pool, const QkNormRopeBackward &b) {
    const QkNormRope &a = b.forward;
    const Chunks chunks(a.tokens.rows());
    void *wanted[4] = {b.dq_weight, b.dq_bias, b.dk_weight, b.dk_bias};
    pool.each(chunks.count, [&](int64_t c, int32_t) {
        float *sums[4] = {};
        for (int s = 0; s < 4; ++s)
            if (a.norm && wanted[s] != nullptr) {
                sums[s] = static_cast<float *>(b.workspace) + (c * 4 + s) * a.d;
                std::memset(sums[s], 0, static_cast<size_t>(a.d) * sizeof(float));
            }
        HWY_DYNAMIC_DISPATCH(qk_norm_rope_backward_rows)(b, chunks.begin(c), chunks.end(c), sums);
    });
    for (int s = 0; s < 4; ++s)
        if (a.norm && wanted[s] != nullptr)
            add_chunks(pool, static_cast<const float *>(b.workspace) + s * a.d, chunks.count, 4 * a.d, a.d, static_cast<float *>(wanted[s]),
                       b.accumulate);
}

int64_t qk_norm_rope_backward_workspace(const KernelSize &s) { return mul(mul(Chunks::most(s.rows), mul(4, s.d)), sizeof(float)); }

}  // namespace mdlm::cpu
#endif

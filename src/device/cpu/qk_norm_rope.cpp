// SPDX-License-Identifier: Apache-2.0
// The norm of each query and key head over its channels, then rotary. A head is walked in pieces: the two channels of
// each rotary pair side by side in two spans (halves, or even and odd), and the channels that do not turn in one.
// Numbers are float, or double for a head that float does not do (moments.hpp). The loops are plain; the compiler makes
// vectors of them for each instruction set.
#include "device/cpu/targets.hpp"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "device/cpu/qk_norm_rope.cpp"
#include "hwy/foreach_target.h"

#include <cmath>
#include <type_traits>

#include "device/cpu/kernels.hpp"
#include "device/cpu/moments.hpp"
#include "device/cpu/rope-inl.hpp"
#include "device/cpu/row_sums.hpp"

HWY_BEFORE_NAMESPACE();
namespace mdlm::cpu::HWY_NAMESPACE {
namespace rope {

// One kind of heads: queries or keys.
struct HeadKind {
    Heads in, out;  // backward: x, dx
    const void *weight, *bias;
    float *rstd, *mean;
    int64_t per_group;
    Heads gradient;          // backward: of what the forward made
    float *dweight, *dbias;  // backward: this chunk's sums, or null
};

int64_t place(const Heads &h, int64_t row, int64_t group, int64_t i) {
    return row * h.row_stride + group * h.group_stride + i * h.head_stride;
}

template <class N>
void apply(N *x, const N *w, int64_t n, bool zero_centered) {
    for (int64_t j = 0; j < n; ++j) x[j] *= zero_centered ? N(1) + w[j] : w[j];
}

// What takes a head to its norm: xhat = (x - middle) rstd + shift.
template <class N>
struct Norm {
    N middle = 0, rstd = 1, shift = 0;
    void apply(N *x, int64_t n) const {
        for (int64_t j = 0; j < n; ++j) x[j] = (x[j] - middle) * rstd + shift;
    }
    void apply(Pair<N> &x, const Piece &p) const {
        apply(x.a, p.n);
        if (p.two) apply(x.b, p.n);
    }
};
Norm<double> exact_norm(const QkNormRope &a, const HeadKind &k, int64_t from) {
    const Moments m = moments(a.dtype, k.in.base, from, a.d, a.rms, a.epsilon);
    return {m.mean, m.rstd, 0.0};
}

// False: float does not do. The mean is taken in two steps: a middle, which a sum of floats rounds, and how far off it
// is.
bool measure(const QkNormRope &a, const HeadKind &k, int64_t from, int64_t stat, Norm<float> &norm) {
    const auto d = static_cast<double>(a.d);
    float x[max_span];
    double total = 0.0, squares = 0.0, off = 0.0;
    for (int64_t c = 0; c < a.d && !a.rms; c += max_span) {
        const int64_t n = std::min(max_span, a.d - c);
        read(a.dtype, k.in.base, from + c, n, x);
        total += sum_span(x, n);
    }
    norm.middle = static_cast<float>(total / d);
    for (int64_t c = 0; c < a.d; c += max_span) {
        const int64_t n = std::min(max_span, a.d - c);
        read(a.dtype, k.in.base, from + c, n, x);
        for (int64_t j = 0; j < n && !a.rms; ++j) x[j] -= norm.middle;
        squares += dot_span(x, x, n);
        if (!a.rms) off += sum_span(x, n);
    }
    squares /= d, off /= d;
    if (!float_does(squares, off, a.epsilon)) return false;
    const double rstd = 1.0 / std::sqrt(variance_of(squares, off) + a.epsilon);
    norm.rstd = static_cast<float>(rstd), norm.shift = static_cast<float>(-off * rstd);
    k.rstd[stat] = norm.rstd;
    if (k.mean != nullptr) k.mean[stat] = static_cast<float>(static_cast<double>(norm.middle) + off);
    return true;
}

template <class N>
void normalize_and_rotate(const QkNormRope &a, const HeadKind &k, int64_t from, int64_t to, int64_t position,
                          const Norm<N> &norm) {
    pieces(a, [&](const Piece &p) {
        Pair<N> v, w;
        read_piece(a.dtype, k.in.base, from, p, v);
        if (a.norm) norm.apply(v, p);
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

void forward_head(const QkNormRope &a, const HeadKind &k, int64_t row, int64_t position, int64_t group, int64_t i,
                  int64_t stat) {
    const int64_t from = place(k.in, row, group, i), to = place(k.out, row, group, i);
    Norm<float> norm;
    if (!a.norm || measure(a, k, from, stat, norm)) return normalize_and_rotate(a, k, from, to, position, norm);
    const Norm<double> exact = exact_norm(a, k, from);
    k.rstd[stat] = static_cast<float>(exact.rstd);
    if (k.mean != nullptr) k.mean[stat] = static_cast<float>(exact.middle);
    normalize_and_rotate(a, k, from, to, position, exact);
}

// Adds to the sums of the parameters, if they are there and wanted. False: products overflowed, dx is not written.
template <class N>
bool backward_norm(const QkNormRope &a, const HeadKind &k, int64_t at_x, int64_t from, int64_t to, int64_t position,
                   const Norm<N> &norm, bool parameters) {
    // dy: gradient of the norm's output; x: xhat
    const auto load = [&](const Piece &p, Pair<N> &dy, Pair<N> &x) {
        read_piece(a.dtype, k.gradient.base, from, p, dy);
        rotate(a, position, p, true, dy);
        read_piece(a.dtype, k.in.base, at_x, p, x);
        norm.apply(x, p);
    };
    const auto weigh = [&](const Piece &p, Pair<N> &dy) {
        Pair<N> w;
        read_piece(a.dtype, k.weight, 0, p, w);
        apply(dy.a, w.a, p.n, a.zero_centered);
        if (p.two) apply(dy.b, w.b, p.n, a.zero_centered);
    };
    float *dweight = parameters ? k.dweight : nullptr, *dbias = parameters ? k.dbias : nullptr;
    double along_x = 0.0, along_1 = 0.0;
    pieces(a, [&](const Piece &p) {
        Pair<N> dy, x;
        load(p, dy, x);
        for (int64_t j = 0; j < p.n; ++j) {
            const int64_t c = p.first + j * p.stride, e = p.second + j * p.stride;
            if (dweight != nullptr) dweight[c] = static_cast<float>(dweight[c] + dy.a[j] * x.a[j]);
            if (dbias != nullptr) dbias[c] += static_cast<float>(dy.a[j]);
            if (dweight != nullptr && p.two) dweight[e] = static_cast<float>(dweight[e] + dy.b[j] * x.b[j]);
            if (dbias != nullptr && p.two) dbias[e] += static_cast<float>(dy.b[j]);
        }
        weigh(p, dy);
        along_x += dot_span(dy.a, x.a, p.n) + (p.two ? dot_span(dy.b, x.b, p.n) : 0.0);
        if (!a.rms) along_1 += sum_span(dy.a, p.n) + (p.two ? sum_span(dy.b, p.n) : 0.0);
    });
    if (std::is_same_v<N, float> && !float_did(along_x, along_1)) return false;
    if (k.out.base == nullptr) return true;
    const auto mean_gx = static_cast<N>(along_x / static_cast<double>(a.d)),
               mean_g = static_cast<N>(along_1 / static_cast<double>(a.d));
    pieces(a, [&](const Piece &p) {
        Pair<N> dy, x;
        load(p, dy, x);
        weigh(p, dy);
        for (int64_t j = 0; j < p.n; ++j) dy.a[j] = norm.rstd * (dy.a[j] - mean_g - x.a[j] * mean_gx);
        for (int64_t j = 0; p.two && j < p.n; ++j) dy.b[j] = norm.rstd * (dy.b[j] - mean_g - x.b[j] * mean_gx);
        write_piece(a.dtype, k.out.base, to, p, dy);
    });
    return true;
}

void backward_head(const QkNormRope &a, const HeadKind &k, int64_t row, int64_t position, int64_t group, int64_t i,
                   int64_t stat) {
    const int64_t from = place(k.gradient, row, group, i), to = place(k.out, row, group, i);
    const int64_t at_x = place(k.in, row, group, i);
    if (!a.norm) {
        if (k.out.base == nullptr) return;
        pieces(a, [&](const Piece &p) {
            Pair<float> g;
            read_piece(a.dtype, k.gradient.base, from, p, g);
            rotate(a, position, p, true, g);
            write_piece(a.dtype, k.out.base, to, p, g);
        });
        return;
    }
    const Norm<float> norm{k.mean != nullptr ? k.mean[stat] : 0.0f, k.rstd[stat], 0.0f};
    const bool does = float_does(norm.middle, norm.rstd);
    if (does && backward_norm(a, k, at_x, from, to, position, norm, true)) return;
    backward_norm(a, k, at_x, from, to, position, exact_norm(a, k, at_x), !does);
}

// Calls body(kind, row, position, group, head of the group, index of its statistics) for query heads [begin, end) of
// all rows, and for the key head of each group with its first query head.
template <class Body>
void heads_of(const QkNormRope &a, int64_t begin, int64_t end, const HeadKind &q, const HeadKind &k, Body &&body) {
    for (int64_t head = begin; head < end; ++head) {
        const int64_t row = head / a.heads, g = head % a.heads / q.per_group, i = head % q.per_group;
        const int64_t position = a.mask.position(a.tokens.batch_first ? row % a.tokens.seq : row / a.tokens.batch);
        body(q, row, position, g, i, head);
        if (i == 0) body(k, row, position, g, 0, row * a.groups + g);
    }
}

HeadKind kind(const QkNormRope &a, bool queries) {
    if (queries)
        return {a.q,
                a.q_out,
                a.q_weight,
                a.q_bias,
                static_cast<float *>(a.q_rstd),
                static_cast<float *>(a.q_mean),
                a.heads / a.groups,
                {},
                nullptr,
                nullptr};
    return {a.k, a.k_out, a.k_weight, a.k_bias, static_cast<float *>(a.k_rstd), static_cast<float *>(a.k_mean),
            1,   {},      nullptr,    nullptr};
}

}  // namespace rope

void qk_norm_rope_heads(const QkNormRope &a, int64_t begin, int64_t end) {
    rope::heads_of(a, begin, end, rope::kind(a, true), rope::kind(a, false),
                   [&](const rope::HeadKind &of, int64_t row, int64_t position, int64_t g, int64_t i, int64_t stat) {
                       rope::forward_head(a, of, row, position, g, i, stat);
                   });
}

// sums: of dq_weight, dq_bias, dk_weight, dk_bias over the heads, or null.
void qk_norm_rope_backward_heads(const QkNormRopeBackward &b, int64_t begin, int64_t end, float *const *sums) {
    const QkNormRope &a = b.forward;
    rope::HeadKind q = rope::kind(a, true), k = rope::kind(a, false);
    q.gradient = b.dq_out, q.out = b.dq, q.dweight = sums[0], q.dbias = sums[1];
    k.gradient = b.dk_out, k.out = b.dk, k.dweight = sums[2], k.dbias = sums[3];
    rope::heads_of(a, begin, end, q, k,
                   [&](const rope::HeadKind &of, int64_t row, int64_t position, int64_t g, int64_t i, int64_t stat) {
                       rope::backward_head(a, of, row, position, g, i, stat);
                   });
}

}  // namespace mdlm::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace mdlm::cpu {
namespace {
HWY_EXPORT(qk_norm_rope_heads);
HWY_EXPORT(qk_norm_rope_backward_heads);
}  // namespace

void qk_norm_rope(Pool &pool, const QkNormRope &a) {
    parallel_ranges(pool, a.tokens.rows(), (a.heads + a.groups) * a.d, [&](int64_t begin, int64_t end, int32_t) {
        HWY_DYNAMIC_DISPATCH(qk_norm_rope_heads)(a, begin * a.heads, end * a.heads);
    });
}

void qk_norm_rope_backward(Pool &pool, const QkNormRopeBackward &b) {
    const QkNormRope &a = b.forward;
    void *to[4] = {b.dq_weight, b.dq_bias, b.dk_weight, b.dk_bias};
    int64_t columns = 0, first[4];
    for (int s = 0; s < 4; ++s) {
        if (!a.norm) to[s] = nullptr;
        first[s] = columns;
        if (to[s] != nullptr) columns += a.d;
    }
    const RowSums sums(a.tokens.rows() * a.heads, columns, b.workspace);
    sums.run(pool, [&](int64_t begin, int64_t end, float *block) {
        float *parts[4];
        for (int s = 0; s < 4; ++s) parts[s] = to[s] != nullptr ? block + first[s] : nullptr;
        HWY_DYNAMIC_DISPATCH(qk_norm_rope_backward_heads)(b, begin, end, parts);
    });
    for (int s = 0; s < 4; ++s)
        if (to[s] != nullptr) sums.add_to(pool, first[s], a.d, static_cast<float *>(to[s]), b.accumulate);
}

int64_t qk_norm_rope_backward_workspace(const KernelSize &s, int32_t threads) {
    return RowSums::bytes(mul(s.rows, s.heads), mul(4, s.d), threads);
}

}  // namespace mdlm::cpu
#endif

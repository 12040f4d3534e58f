// SPDX-License-Identifier: Apache-2.0
// The norm of each query and key head (formulas: norm.hpp), then the rotary embedding (Su et al., "RoFormer", arXiv
// 2104.09864).
//
// Pair p of a head's first rotary_dim channels is (p, p + rotary_dim / 2), or (2p, 2p + 1) when interleaved. At
// position t:
//   (a, b) -> (a cos - b sin, b cos + a sin),  cos and sin from row t, column p of the tables;  other channels pass
// The gradient turns back: (da, db) -> (da cos + db sin, db cos - da sin), and then goes through the norm.
#include "device/reference/families.hpp"
#include "device/reference/norm.hpp"

namespace mdlm::reference {
namespace {

// Queries or keys: what differs between the two.
struct HeadKind {
    int64_t per_group;  // heads of a group
    Heads in;
    const void *weight, *bias;
    void *rstd, *mean;
};
HeadKind queries(const QkNormRope &a) { return {a.heads / a.groups, a.q, a.q_weight, a.q_bias, a.q_rstd, a.q_mean}; }
HeadKind keys(const QkNormRope &a) { return {1, a.k, a.k_weight, a.k_bias, a.k_rstd, a.k_mean}; }

// Calls body(s, row, g, i, index) for every head of every token, in logical order; index is that of its statistics.
template <class Body>
void each_head(const QkNormRope &a, const HeadKind &kind, Body &&body) {
    for (int64_t s = 0; s < a.tokens.seq; ++s) {
        for (int64_t b = 0; b < a.tokens.batch; ++b) {
            const int64_t row = a.tokens.row(s, b);
            for (int64_t g = 0; g < a.groups; ++g) {
                for (int64_t i = 0; i < kind.per_group; ++i)
                    body(s, row, g, i, (row * a.groups + g) * kind.per_group + i);
            }
        }
    }
}

// Channel c of a head at position t, turned forward (sign 1) or back (sign -1); head(c) gives a channel before.
template <class W, class Head>
double turned(const QkNormRope &a, int64_t t, int64_t c, double sign, Head &&head) {
    if (c >= a.rotary_dim) return head(c);
    const int64_t half = a.rotary_dim / 2, pair = a.interleaved ? c / 2 : c % half;
    const int64_t first = a.interleaved ? 2 * pair : pair, second = a.interleaved ? first + 1 : first + half;
    const double cos = get<W>(a.cos, t * half + pair), sin = sign * get<W>(a.sin, t * half + pair);
    return c == first ? head(first) * cos - head(second) * sin : head(second) * cos + head(first) * sin;
}

template <class T>
void forward(const QkNormRope &a, const HeadKind &kind, const Heads &out) {
    using W = Wide<T>;
    each_head(a, kind, [&](int64_t s, int64_t row, int64_t g, int64_t i, int64_t index) {
        const T *x = static_cast<const T *>(kind.in.base) + place(kind.in, row, g, i);
        Moments m = {0.0, 1.0};
        if (a.norm) {
            m = moments(x, a.d, a.rms, a.epsilon);
            put<W>(kind.rstd, index, m.rstd);
            if (kind.mean != nullptr) put<W>(kind.mean, index, m.mean);
        }
        const auto normed = [&](int64_t c) {
            if (!a.norm) return get<T>(x, c);
            const double bias = kind.bias != nullptr ? get<T>(kind.bias, c) : 0.0;
            return (get<T>(x, c) - m.mean) * m.rstd * gamma<T>(kind.weight, c, a.zero_centered) + bias;
        };
        for (int64_t c = 0; c < a.d; ++c)
            put<T>(out.base, place(out, row, g, i) + c, turned<W>(a, a.mask.position(s), c, 1.0, normed));
    });
}

template <class T>
void backward(const QkNormRopeBackward &b, const HeadKind &kind, const Heads &dout, const Heads &din, void *dweight,
              void *dbias) {
    using W = Wide<T>;
    const QkNormRope &a = b.forward;
    const auto dnormed = [&](int64_t s, int64_t row, int64_t g, int64_t i, int64_t c) {
        return turned<W>(a, a.mask.position(s), c, -1.0,
                         [&](int64_t o) { return get<T>(dout.base, place(dout, row, g, i) + o); });
    };
    const auto moments_of = [&](int64_t row, int64_t g, int64_t i, int64_t index) {
        return stored_moments(kind.mean, kind.rstd, index,
                              static_cast<const T *>(kind.in.base) + place(kind.in, row, g, i), a.d, a.epsilon);
    };
    const auto hat = [&](int64_t row, int64_t g, int64_t i, int64_t index, int64_t c) {
        const Moments m = moments_of(row, g, i, index);
        return (get<T>(kind.in.base, place(kind.in, row, g, i) + c) - m.mean) * m.rstd;
    };
    for (int64_t c = 0; a.norm && c < a.d; ++c) {
        double weight = 0.0, bias = 0.0;
        each_head(a, kind, [&](int64_t s, int64_t row, int64_t g, int64_t i, int64_t index) {
            const double dy = dnormed(s, row, g, i, c);
            weight += dy * hat(row, g, i, index, c);
            bias += dy;
        });
        if (dweight != nullptr) put_gradient<W>(dweight, c, weight, b.accumulate);
        if (dbias != nullptr) put_gradient<W>(dbias, c, bias, b.accumulate);
    }
    if (din.base == nullptr) return;
    each_head(a, kind, [&](int64_t s, int64_t row, int64_t g, int64_t i, int64_t index) {
        const int64_t to = place(din, row, g, i);
        if (!a.norm) {
            for (int64_t c = 0; c < a.d; ++c) put<T>(din.base, to + c, dnormed(s, row, g, i, c));
            return;
        }
        const auto gradient = [&](int64_t c) {
            return dnormed(s, row, g, i, c) * gamma<T>(kind.weight, c, a.zero_centered);
        };
        const auto x = [&](int64_t c) { return hat(row, g, i, index, c); };
        const GradientMeans mean = gradient_means(a.d, a.rms, gradient, x);
        const double rstd = moments_of(row, g, i, index).rstd;
        for (int64_t c = 0; c < a.d; ++c) put<T>(din.base, to + c, rstd * (gradient(c) - mean.g - x(c) * mean.gx));
    });
}

}  // namespace

void qk_norm_rope(const QkNormRope &a) {
    with_type(a.dtype, [&]<class T>() {
        forward<T>(a, queries(a), a.q_out);
        forward<T>(a, keys(a), a.k_out);
    });
}
void qk_norm_rope_backward(const QkNormRopeBackward &b) {
    with_type(b.forward.dtype, [&]<class T>() {
        backward<T>(b, queries(b.forward), b.dq_out, b.dq, b.dq_weight, b.dq_bias);
        backward<T>(b, keys(b.forward), b.dk_out, b.dk, b.dk_weight, b.dk_bias);
    });
}

int64_t qk_norm_rope_backward_workspace(const KernelSize &, int32_t) { return 0; }

}  // namespace mdlm::reference

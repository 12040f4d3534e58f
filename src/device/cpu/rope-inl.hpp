// SPDX-License-Identifier: Apache-2.0
// Pieces of a head for rotary: what qk_norm_rope.cpp reads, turns, sums and writes, in float or double. Included like
// vector-inl.hpp.
#include "device/cpu/spans.hpp"
#include "device/kernels.hpp"
#include "hwy/highway.h"

#if defined(MDLM_CPU_ROPE_INL) == defined(HWY_TARGET_TOGGLE)
#ifdef MDLM_CPU_ROPE_INL
#undef MDLM_CPU_ROPE_INL
#else
#define MDLM_CPU_ROPE_INL
#endif

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
    for (int64_t i = 0; i < half; i += max_span) {
        const int64_t n = std::min(max_span, half - i);
        body(a.interleaved ? Piece{2 * i, 2 * i + 1, 2, n, true} : Piece{i, half + i, 1, n, true});
    }
    for (int64_t c = a.rotary_dim; c < a.d; c += max_span) body(Piece{c, 0, 1, std::min(max_span, a.d - c), false});
}

template <class N>
struct Pair {
    N a[max_span], b[max_span];
};

// Elements [at, at + n), in float or double.
inline void read_span(DType type, const void *base, int64_t at, int64_t n, float *out) { read(type, base, at, n, out); }
inline void read_span(DType type, const void *base, int64_t at, int64_t n, double *out) {
    float narrow[2 * max_span];
    read(type, base, at, n, narrow);
    for (int64_t j = 0; j < n; ++j) out[j] = static_cast<double>(narrow[j]);
}
inline void write_span(DType type, void *base, int64_t at, int64_t n, const float *in) { write(type, base, at, n, in); }
inline void write_span(DType type, void *base, int64_t at, int64_t n, const double *in) {
    float narrow[2 * max_span];
    for (int64_t j = 0; j < n; ++j) narrow[j] = static_cast<float>(in[j]);
    write(type, base, at, n, narrow);
}

template <class N>
void read_piece(DType type, const void *base, int64_t offset, const Piece &p, Pair<N> &out) {
    if (p.stride == 1) {
        read_span(type, base, offset + p.first, p.n, out.a);
        if (p.two) read_span(type, base, offset + p.second, p.n, out.b);
        return;
    }
    N both[2 * max_span];
    read_span(type, base, offset + p.first, 2 * p.n, both);
    for (int64_t j = 0; j < p.n; ++j) {
        out.a[j] = both[2 * j];
        out.b[j] = both[2 * j + 1];
    }
}

template <class N>
void write_piece(DType type, void *base, int64_t offset, const Piece &p, const Pair<N> &in) {
    if (p.stride == 1) {
        write_span(type, base, offset + p.first, p.n, in.a);
        if (p.two) write_span(type, base, offset + p.second, p.n, in.b);
        return;
    }
    N both[2 * max_span];
    for (int64_t j = 0; j < p.n; ++j) {
        both[2 * j] = in.a[j];
        both[2 * j + 1] = in.b[j];
    }
    write_span(type, base, offset + p.first, 2 * p.n, both);
}

// Turns by the angle of the position; backward turns back.
template <class N>
void rotate(const QkNormRope &a, int64_t position, const Piece &p, bool back, Pair<N> &x) {
    if (!p.two) return;
    const int64_t half = a.rotary_dim / 2, from = position * half + p.first / p.stride;
    const float *cosine = static_cast<const float *>(a.cos) + from, *sine = static_cast<const float *>(a.sin) + from;
    const float sign = back ? -1.0f : 1.0f;
    for (int64_t j = 0; j < p.n; ++j) {
        const N u = x.a[j], v = x.b[j], s = sign * sine[j];
        x.a[j] = u * cosine[j] - v * s;
        x.b[j] = v * cosine[j] + u * s;
    }
}

inline double sum_span(const float *x, int64_t n) { return static_cast<double>(sum(x, n)); }
inline double dot_span(const float *x, const float *y, int64_t n) { return static_cast<double>(dot(x, y, n)); }
inline double sum_span(const double *x, int64_t n) {
    double total = 0.0;
    for (int64_t j = 0; j < n; ++j) total += x[j];
    return total;
}
inline double dot_span(const double *x, const double *y, int64_t n) {
    double total = 0.0;
    for (int64_t j = 0; j < n; ++j) total += x[j] * y[j];
    return total;
}

}  // namespace rope
}  // namespace mdlm::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();
#endif

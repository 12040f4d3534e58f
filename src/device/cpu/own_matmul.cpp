// SPDX-License-Identifier: Apache-2.0
// Our own matrix product, blocked for the caches as in Goto and van de Geijn, "Anatomy of high-performance matrix
// multiplication" (2008): a block of b is packed into panels that stay in the third cache, a block of a in the second,
// and a panel of b in the first. Every element of c is summed over blocks of k in order, so its bits do not depend on
// the tile that it is computed in.
#include "device/cpu/targets.hpp"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "device/cpu/own_matmul.cpp"
#include "hwy/foreach_target.h"

#include <algorithm>

#include "base/sizes.hpp"
#include "device/cpu/matmul.hpp"
#include "device/cpu/micro-inl.hpp"
#include "device/cpu/product.hpp"

HWY_BEFORE_NAMESPACE();
namespace mdlm::cpu::HWY_NAMESPACE {
namespace own {

constexpr int64_t block_k = 384, block_m = 96;
// Rows of a that is not transposed are copied as rows; not a power of two apart, see row_of.
constexpr int64_t a_row = block_k + 16, c_row = own_columns + 16;
// A panel of a that is transposed, and room for what a whole vector writes behind its last row.
constexpr int64_t a_panel = block_k * micro_m + 16;
// Rows that are packed together: a panel gets several lines in a row, and few pages are read at a time.
constexpr int64_t at_once = 8;
static_assert(padded(micro_m, lanes) - micro_m <= 16 && block_m / micro_m * a_panel <= block_m * a_row);
static_assert(block_m % micro_m == 0 && own_rows % micro_m == 0 && own_columns % product_n == 0 &&
              product_n % micro_n == 0);

struct Scratch {
    float *a, *b, *bias, *c;  // c only where the output is not float
    explicit Scratch(float *base)
        : a(base), b(a + block_m * a_row), bias(b + block_k * own_columns), c(bias + own_columns) {}
    static constexpr int64_t floats(bool direct) {
        return block_m * a_row + block_k * own_columns + own_columns + (direct ? 0 : own_rows * c_row);
    }
};

// a[m rows][k], as rows.
template <class T>
void pack_a(const T *from, int64_t from_row, int64_t m, int64_t k, float *to) {
    for (int64_t i = 0; i < m; ++i)
        vectors(k, [&](int64_t p, int64_t n) HWY_ATTR { store(load(from + i * from_row + p, n), to + i * a_row + p); });
    for (int64_t i = m; i < padded(m, micro_m); ++i) std::fill_n(to + i * a_row, k, 0.0f);
}

// a stored [k][m], as panels [m / micro_m][k][micro_m].
template <class T>
void pack_a_transposed(const T *from, int64_t from_row, int64_t m, int64_t k, float *to) {
    constexpr int64_t wide = padded(micro_m, lanes);
    for (int64_t p0 = 0; p0 < k; p0 += at_once) {
        const int64_t p1 = std::min(k, p0 + at_once);
        float *panel = to;
        int64_t i = 0;
        for (; i + wide <= m; i += micro_m, panel += a_panel)
            for (int64_t p = p0; p < p1; ++p)
                // What a vector writes too much, the next row takes, or the room at the end of the panel.
                for (int64_t r = 0; r < wide; r += lanes)
                    store(load(from + p * from_row + i + r), panel + p * micro_m + r);
        for (; i < m; i += micro_m, panel += a_panel)
            for (int64_t p = p0; p < p1; ++p)
                for (int64_t r = 0; r < micro_m; ++r)
                    panel[p * micro_m + r] = i + r < m ? float(from[p * from_row + i + r]) : 0.0f;
    }
}

// b[k][n], as panels [n / micro_n][k][micro_n].
template <class T>
void pack_b(const T *from, int64_t from_row, int64_t n, int64_t k, float *to) {
    const int64_t whole = n / micro_n * micro_n;
    for (int64_t p0 = 0; p0 < k; p0 += at_once)
        for (int64_t j = 0; j < whole; j += micro_n)
            for (int64_t p = p0; p < std::min(k, p0 + at_once); ++p) {
                float *at = to + j * block_k + p * micro_n;
                store(load(from + p * from_row + j), at);
                store(load(from + p * from_row + j + lanes), at + lanes);
            }
    if (whole == n) return;
    for (int64_t p = 0; p < k; ++p)
        for (int64_t r = 0; r < micro_n; ++r)
            to[whole * block_k + p * micro_n + r] = whole + r < n ? float(from[p * from_row + whole + r]) : 0.0f;
}

// b stored [n][k], as the same panels: transposed in groups of 4 rows.
template <class T>
void pack_b_transposed(const T *from, int64_t from_row, int64_t n, int64_t k, float *to) {
    for (int64_t j = 0; j < n; j += micro_n, to += block_k * micro_n) {
        const int64_t rows = std::min(micro_n, n - j), transposed = rows / 4;
        for (int64_t g = 0; g < transposed; ++g)
            transpose_four(from + (j + 4 * g) * from_row, from_row, k, to + 4 * g, micro_n);
        if (4 * transposed == micro_n) continue;
        for (int64_t p = 0; p < k; ++p)
            for (int64_t r = 4 * transposed; r < micro_n; ++r)
                to[p * micro_n + r] = r < rows ? float(from[(j + r) * from_row + p]) : 0.0f;
    }
}

// One micro tile of which only rows by columns are inside c.
template <Start start>
HWY_INLINE void edge(int64_t k, const float *a, int64_t a_i, int64_t a_p, const float *b, const float *bias, float *c,
                     int64_t row, int64_t rows, int64_t columns) {
    HWY_ALIGN float part[micro_m * micro_n] = {};
    if constexpr (start == Start::c)
        for (int64_t i = 0; i < rows; ++i) std::copy_n(c + i * row, columns, part + i * micro_n);
    micro<start>(k, a, a_i, a_p, b, micro_n, bias, part, micro_n);
    for (int64_t i = 0; i < rows; ++i) std::copy_n(part + i * micro_n, columns, c + i * row);
}

// c[m, n] = start + the product of the packed blocks.
template <Start start, bool transposed>
void block(int64_t m, int64_t n, int64_t k, const Scratch &s, float *c, int64_t row) {
    constexpr int64_t a_i = transposed ? 1 : a_row, a_p = transposed ? micro_m : 1;
    for (int64_t j = 0; j < n; j += micro_n) {
        const float *b = s.b + j * block_k;
        for (int64_t i = 0; i < m; i += micro_m) {
            const float *a = transposed ? s.a + i / micro_m * a_panel : s.a + i * a_row;
            float *to = c + i * row + j;
            if (i + micro_m <= m && j + micro_n <= n) micro<start>(k, a, a_i, a_p, b, micro_n, s.bias + j, to, row);
            else
                edge<start>(k, a, a_i, a_p, b, s.bias + j, to, row, std::min(micro_m, m - i), std::min(micro_n, n - j));
        }
    }
}

template <bool transposed>
void block(Start start, int64_t m, int64_t n, int64_t k, const Scratch &s, float *c, int64_t row) {
    if (start == Start::zero) block<Start::zero, transposed>(m, n, k, s, c, row);
    if (start == Start::c) block<Start::c, transposed>(m, n, k, s, c, row);
    if (start == Start::bias) block<Start::bias, transposed>(m, n, k, s, c, row);
}

// A tile of at most own_rows by own_columns. T is the type of a, b and bias.
template <class T>
void tile(const Matmul &p, const T *a, const T *b, const T *bias, void *out, const Scratch &s) {
    const bool direct = p.out == DType::f32;
    float *c = direct ? static_cast<float *>(out) : s.c;
    const int64_t row = direct ? p.ldc : c_row;
    std::fill_n(s.bias, padded(p.n, micro_n), 0.0f);
    if (p.bias) vectors(p.n, [&](int64_t j, int64_t n) HWY_ATTR { store(load(bias + j, n), s.bias + j, n); });
    Start start = p.accumulate && direct ? Start::c : p.bias ? Start::bias : Start::zero;
    const int64_t step = ceil_div(p.k, ceil_div(p.k, block_k));  // equal blocks
    for (int64_t p0 = 0; p0 < p.k; p0 += step) {
        const int64_t k = std::min(step, p.k - p0);
        if (p.b_transposed) pack_b_transposed(b + p0, p.ldb, p.n, k, s.b);
        else pack_b(b + p0 * p.ldb, p.ldb, p.n, k, s.b);
        for (int64_t i0 = 0; i0 < p.m; i0 += block_m) {
            const int64_t m = std::min(block_m, p.m - i0);
            if (p.a_transposed) {
                pack_a_transposed(a + p0 * p.lda + i0, p.lda, m, k, s.a);
                block<true>(start, m, p.n, k, s, c + i0 * row, row);
            } else {
                pack_a(a + i0 * p.lda + p0, p.lda, m, k, s.a);
                block<false>(start, m, p.n, k, s, c + i0 * row, row);
            }
        }
        start = Start::c;
    }
    if (direct) {
        if (p.accumulate && p.bias)
            for (int64_t i = 0; i < p.m; ++i)
                vectors(p.n, [&](int64_t j, int64_t n) HWY_ATTR {
                    store(hn::Add(load(c + i * row + j, n), load(s.bias + j, n)), c + i * row + j, n);
                });
        return;
    }
    bf16 *to = static_cast<bf16 *>(out);
    for (int64_t i = 0; i < p.m; ++i)
        vectors(p.n, [&](int64_t j, int64_t n) HWY_ATTR {
            V v = load(c + i * row + j, n);
            if (p.accumulate) v = hn::Add(v, load(to + i * p.ldc + j, n));
            store(v, to + i * p.ldc + j, n);
        });
}

template <class T>
void all(const Matmul &p, const Operands &o, float *workspace) {
    const Scratch s(workspace);
    const T *a = static_cast<const T *>(o.a), *b = static_cast<const T *>(o.b), *bias = static_cast<const T *>(o.bias);
    for (int64_t j0 = 0; j0 < p.n; j0 += own_columns)
        for (int64_t i0 = 0; i0 < p.m; i0 += own_rows) {
            Matmul part = p;
            part.m = std::min(own_rows, p.m - i0);
            part.n = std::min(own_columns, p.n - j0);
            tile(part, a + (p.a_transposed ? i0 : i0 * p.lda), b + (p.b_transposed ? j0 * p.ldb : j0),
                 p.bias ? bias + j0 : nullptr, static_cast<char *>(o.c) + (i0 * p.ldc + j0) * size_of(p.out), s);
        }
}

}  // namespace own

void run_own(const Matmul &p, const Operands &o, float *workspace) {
    if (p.type == DType::f32) own::all<float>(p, o, workspace);
    else own::all<bf16>(p, o, workspace);
}
int64_t own_floats(bool direct) { return own::Scratch::floats(direct); }

}  // namespace mdlm::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace mdlm::cpu {
namespace {
HWY_EXPORT(run_own);
}  // namespace

void run_own(const Matmul &p, const Operands &o, float *workspace) { HWY_DYNAMIC_DISPATCH(run_own)(p, o, workspace); }
int64_t own_workspace(DType type) {
    return rounded(HWY_STATIC_DISPATCH(own_floats)(type == DType::f32) * int64_t{sizeof(float)});
}

}  // namespace mdlm::cpu
#endif

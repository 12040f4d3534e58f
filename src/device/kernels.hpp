// SPDX-License-Identifier: Apache-2.0
// Arguments of the kernels that ops call. Plain data: sizes in elements, pointers to device memory.
//
// Rules for every kernel, on every device:
//  - T is the dtype of activations and parameters; W = wide(T) is that of statistics and parameter gradients.
//  - Every output is written in full, whatever was there, and rounded to its dtype once from the accumulator (float or
//  wider).
//  - Parameter gradients are added to what is there when accumulate is true, else assigned. Activation gradients are
//  assigned.
//  - Pointers marked "or null" may be null: the thing is then absent.
//  - `in place`: the named output may be the same memory as the named input; nothing else overlaps.
//  - The result has the same bits for every number of threads, and does not depend on the address of anything.
//  - workspace holds at least what Traits::workspace says for the kernel at these sizes (null when that is 0).
#pragma once
#include <algorithm>
#include <cstdint>

#include "base/dtype.hpp"
#include "base/philox.hpp"

namespace mdlm {

// Which row of a [rows, width] activation holds token (s, b): rows are s-major, or b-major when batch_first.
struct Tokens {
    int64_t seq = 0, batch = 0;
    bool batch_first = false;
    int64_t first = 0;  // of a rank's part of the sequence: where it begins; seq is then the part's length
    int64_t rows() const { return seq * batch; }
    int64_t row(int64_t s, int64_t b) const { return batch_first ? b * seq + s : s * batch + b; }
    // Index of a row in logical [s, b] order of the whole sequence: what random numbers count by.
    int64_t logical(int64_t row) const { return first * batch + (batch_first ? (row % seq) * batch + row / seq : row); }
};

// Which keys a query sees: always one interval [first, last) that holds the query itself. Per token of the sequence,
// doc_begin and doc_end, in the device's memory, bound its packed document (both null: one document, the sequence).
struct Mask {
    mdlm_mask_type type = MDLM_MASK_NO_MASK;
    int64_t block = 0;              // of block_causal
    int64_t left = -1, right = -1;  // sliding window; -1 = no bound
    int64_t seq = 0;
    const int32_t *doc_begin = nullptr, *doc_end = nullptr;

    int64_t begin_of(int64_t i) const { return doc_begin != nullptr ? doc_begin[i] : 0; }
    int64_t end_of(int64_t i) const { return doc_end != nullptr ? doc_end[i] : seq; }
    int64_t position(int64_t i) const { return i - begin_of(i); }  // restarts with each document
    int64_t first(int64_t i) const { return left < 0 ? begin_of(i) : std::max(begin_of(i), i - left); }
    int64_t last(int64_t i) const {
        // Keys after the query; bounds may be as large as 2^63 - 1, so they are compared, not added.
        int64_t after = end_of(i) - i - 1;
        if (type == MDLM_MASK_CAUSAL) after = 0;
        if (type == MDLM_MASK_BLOCK_CAUSAL) after = std::min(after, block - 1 - position(i) % block);
        if (right >= 0) after = std::min(after, right);
        return i + 1 + after;
    }
};

// Heads inside rows: channel c of head i (0 .. heads/groups - 1) of group g in a row stands at
// base[row * row_stride + g * group_stride + i * head_stride + c]. For keys and values i is 0.
struct Heads {
    void *base = nullptr;
    int64_t row_stride = 0, group_stride = 0, head_stride = 0;
};

// y = norm(x) * (weight or 1 + weight) + bias, row by row. In place: y over x.
struct NormForward {
    DType dtype;
    int64_t rows, width;
    bool rms, zero_centered;
    double epsilon;
    const void *x, *weight, *bias;  // T; bias or null (RMSNorm)
    void *y;                        // T
    void *rstd, *mean;              // W [rows]; mean is null for RMSNorm
};

// dx = add + (gradient of the norm), one rounding; dweight, dbias: sums over rows. In place: dx over dy or over add.
struct NormBackward {
    DType dtype;
    int64_t rows, width;
    bool rms, zero_centered;
    double epsilon;
    const void *dy, *x, *weight;  // T
    const void *rstd, *mean;      // W [rows]; mean null for RMSNorm
    const void *add;              // T or null
    void *dx;                     // T or null (not wanted)
    void *dweight, *dbias;        // W [width] or null
    bool accumulate;
    void *workspace;
};

// y[m, n] = x[m, k] w[n, k]^T + bias[n]
struct LinearForward {
    DType dtype;
    int64_t m, n, k;
    const void *x, *w, *bias;  // T; bias or null
    void *y;                   // T
    void *workspace;
};
// dx[m, k] = dy[m, n] w[n, k]
struct LinearDgrad {
    DType dtype;
    int64_t m, n, k;
    const void *dy, *w;
    void *dx;
    void *workspace;
};
// dw[n, k] (+)= dy[m, n]^T x[m, k]
struct LinearWgrad {
    DType dtype;
    int64_t m, n, k;
    const void *dy, *x;
    void *dw;  // W
    bool accumulate;
    void *workspace;
};
// db[width] (+)= sum over rows of dy
struct BiasGrad {
    DType dtype;
    int64_t rows, width;
    const void *dy;
    void *db;  // W
    bool accumulate;
    void *workspace;
};

// A norm of each head over its d channels, with one weight (and for LayerNorm a bias) of size d for all heads of a
// kind; then rotary. cos and sin are W [positions, rotary_dim / 2]; position of token s is mask.position(s). rotary_dim
// = 0: no rotary.
struct QkNormRope {
    DType dtype;
    Tokens tokens;
    Mask mask;  // only for positions
    int64_t heads, groups, d, rotary_dim;
    bool interleaved;
    const void *cos, *sin;
    bool norm, rms, zero_centered;
    double epsilon;
    const void *q_weight, *q_bias, *k_weight, *k_bias;  // T [d]; null without norm, biases null for RMSNorm
    Heads q, k;                                         // in, T
    Heads q_out, k_out;                                 // out, T
    // W [rows, heads], [rows, groups]; null without norm; means null for RMSNorm.
    void *q_rstd, *k_rstd, *q_mean, *k_mean;
};
struct QkNormRopeBackward {
    // q, k, weights, statistics, tables as in the forward (q, k null without norm; q_out, k_out unused).
    QkNormRope forward;
    Heads dq_out, dk_out;                             // in: gradients of q_out, k_out
    Heads dq, dk;                                     // out: gradients of q, k; their bases or null
    void *dq_weight, *dq_bias, *dk_weight, *dk_bias;  // W [d] or null
    bool accumulate;
    void *workspace;
};

// What all attention kernels share. Probabilities and scores are [b, heads, s, s]; head = g * (heads / groups) + i.
// Index of an element for dropout, over the heads of all ranks: ((b * all_heads + first_head + head) * s + query) * s +
// key.
struct Attention {
    DType dtype;
    Tokens tokens;
    Mask mask;
    Dropout dropout;  // of the probabilities
    int64_t heads, groups, d;
    double scale;
    // Of the whole tensor-parallel group, and which is this rank's first; 0: heads.
    int64_t all_heads = 0, first_head = 0;
    int64_t dropout_row(int64_t b, int64_t head, int64_t query) const {
        return (b * (all_heads != 0 ? all_heads : heads) + first_head + head) * tokens.seq + query;
    }
};
// context = dropout(softmax(scale q k^T + mask)) v, tile by tile. Each row of probabilities is exp(score - row_max)
// inverse_sum: the two statistics, W [b, heads, s] each, are kept apart, since a sum of both has the rounding of the
// larger one in the exponent. They are for backward on the same device kind, which forms the scores with forward's
// bits; the CPU device counts exponents in powers of 2.
struct AttentionForward {
    Attention shape;
    Heads q, k, v;
    Heads context;                // out
    void *row_max, *inverse_sum;  // out
    void *workspace;
};
struct AttentionBackward {
    Attention shape;
    Heads q, k, v, context, dcontext;
    const void *row_max, *inverse_sum;
    Heads dq, dk, dv;  // out; their bases or null
    void *workspace;
};
// The same in steps. scores = scale q k^T, -infinity outside the mask.
struct AttnScores {
    Attention shape;
    Heads q, k;
    void *scores;  // T
};
// probabilities = softmax(scores), 0 outside the mask. In place: probabilities over scores.
struct AttnSoftmax {
    Attention shape;
    const void *scores;   // T
    void *probabilities;  // T
};
// context = dropout(probabilities) v
struct AttnContext {
    Attention shape;
    const void *probabilities;
    Heads v;
    Heads context;  // out
};
// dprobabilities = dropout(dcontext v^T), 0 outside the mask; dv = dropout(probabilities)^T dcontext (dv.base or
// dprobabilities may be null)
struct AttnContextBackward {
    Attention shape;
    const void *probabilities;
    Heads v, dcontext;
    void *dprobabilities;
    Heads dv;  // out
    void *workspace;
};
// dscores = p * (dp - sum(p * dp)) row by row, 0 outside the mask. In place: dscores over dprobabilities.
struct AttnSoftmaxBackward {
    Attention shape;
    const void *probabilities, *dprobabilities;
    void *dscores;
};
// dq = scale dscores k, dk = scale dscores^T q
struct AttnScoresBackward {
    Attention shape;
    const void *dscores;
    Heads q, k;
    Heads dq, dk;  // out; their bases or null
    void *workspace;
};

// y = residual + dropout(x + bias); element (row, c) has dropout index tokens.logical(row) * width + c. In place: y
// over x or residual.
struct BiasDropoutAdd {
    DType dtype;
    Tokens tokens;
    int64_t width;
    Dropout dropout;
    const void *x, *bias, *residual;  // T; bias or null
    void *y;
};
// dx = dropout(dy), the same mask. In place: dx over dy.
struct DropoutBackward {
    DType dtype;
    Tokens tokens;
    int64_t width;
    Dropout dropout;
    const void *dy;
    void *dx;
};

// to[column, row] = from[row, column]: a matrix of pieces of memory.
struct TransposePieces {
    int64_t rows, columns, bytes;  // of a piece
    const void *from;
    void *to;
};

// m[rows, width] = act(g); g is [rows, width], or [rows, 2 width] (gate, up) for swiglu and geglu.
struct ActivationForward {
    DType dtype;
    mdlm_activation kind;
    int64_t rows, width;
    const void *g;
    void *m;
};
// dg = dm * act'(g), of the shape of g. In place: dg over g.
struct ActivationBackward {
    DType dtype;
    mdlm_activation kind;
    int64_t rows, width;
    const void *g, *dm;
    void *dg;
};

}  // namespace mdlm

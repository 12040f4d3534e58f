// SPDX-License-Identifier: Apache-2.0
// Attention whose scores never leave the kernel (Vaswani et al., arXiv 1706.03762; the backward as in Dao et al.,
// "FlashAttention", arXiv 2205.14135, without its tiles). For a query q, over the keys j that it sees, with dropout
// factors f_j:
//   s_j = scale q k_j,  p_j = exp(s_j - max s) / sum exp(s - max s),  o = sum f_j p_j v_j
// Backward finds the largest score again: scores are doubles, and what W can hold of a large one is no use in an
// exponent. With the gradient do of o:
//   dv_j += f_j p_j do,  ds_j = p_j (f_j (do v_j) - do o),  dq = scale sum ds_j k_j,  dk_j += scale ds_j q
// Workspace: forward one row of seq doubles; backward that, and the sums of dk and dv of one group, [seq, d] doubles
// each.
#include <cmath>

#include "device/reference/attention.hpp"
#include "device/reference/families.hpp"

namespace mdlm::reference {
namespace {

// row[j] = s_j of one query for the keys in [first, last); returns the largest.
template <class T>
double scores(const Attention &a, const Heads &q, int64_t query, const Heads &k, int64_t b, int64_t g, int64_t first,
              int64_t last, double *row) {
    double most = -HUGE_VAL;
    for (int64_t j = first; j < last; ++j) {
        row[j] = a.scale * dot<T>(q, query, k, place(k, a.tokens.row(j, b), g, 0), a.d);
        most = std::max(most, row[j]);
    }
    return most;
}

template <class T>
void forward(const AttentionForward &f) {
    const Attention &a = f.shape;
    auto *row = static_cast<double *>(f.workspace);
    each_query(a, [&](int64_t b, int64_t g, int64_t i, int64_t query) {
        const int64_t first = a.mask.first(query), last = a.mask.last(query), at = score_row(a, b, g, i, query);
        const int64_t drawn = dropout_row(a, b, g, i, query);
        const int64_t q = place(f.q, a.tokens.row(query, b), g, i);
        const double most = scores<T>(a, f.q, q, f.k, b, g, first, last, row);
        double total = 0.0;
        for (int64_t j = first; j < last; ++j) total += std::exp(row[j] - most);
        put<Wide<T>>(f.row_max, at, most);
        put<Wide<T>>(f.inverse_sum, at, 1.0 / total);
        for (int64_t j = first; j < last; ++j)
            row[j] = std::exp(row[j] - most) / total * a.dropout.factor(uint64_t(drawn + j));
        const int64_t to = place(f.context, a.tokens.row(query, b), g, i);
        for (int64_t c = 0; c < a.d; ++c) {
            double o = 0.0;
            for (int64_t j = first; j < last; ++j)
                o += row[j] * get<T>(f.v.base, place(f.v, a.tokens.row(j, b), g, 0) + c);
            put<T>(f.context.base, to + c, o);
        }
    });
}

template <class T>
void backward(const AttentionBackward &f) {
    const Attention &a = f.shape;
    auto *row = static_cast<double *>(f.workspace);
    KeySums dk(row + a.tokens.seq, a), dv(row + a.tokens.seq + a.tokens.seq * a.d, a);
    const auto one = [&](int64_t b, int64_t g, int64_t i, int64_t query) {
        const int64_t at = score_row(a, b, g, i, query), token = a.tokens.row(query, b);
        const int64_t drawn = dropout_row(a, b, g, i, query);
        const int64_t q = place(f.q, token, g, i), dout = place(f.dcontext, token, g, i);
        const double inverse = get<Wide<T>>(f.inverse_sum, at);
        const double mean = dot<T>(f.dcontext, dout, f.context, place(f.context, token, g, i), a.d);
        const int64_t first = a.mask.first(query), last = a.mask.last(query);
        const double most = scores<T>(a, f.q, q, f.k, b, g, first, last, row);
        for (int64_t j = first; j < last; ++j) {
            const int64_t v = place(f.v, a.tokens.row(j, b), g, 0);
            const double p = std::exp(row[j] - most) * inverse;
            const double factor = a.dropout.factor(uint64_t(drawn + j));
            row[j] = p * (factor * dot<T>(f.dcontext, dout, f.v, v, a.d) - mean);
            if (f.dv.base != nullptr) dv.add<T>(j, factor * p, f.dcontext, dout);
            if (f.dk.base != nullptr) dk.add<T>(j, a.scale * row[j], f.q, q);
        }
        if (f.dq.base == nullptr) return;
        const int64_t to = place(f.dq, token, g, i);
        for (int64_t c = 0; c < a.d; ++c) {
            double dq = 0.0;
            for (int64_t j = first; j < last; ++j)
                dq += row[j] * get<T>(f.k.base, place(f.k, a.tokens.row(j, b), g, 0) + c);
            put<T>(f.dq.base, to + c, a.scale * dq);
        }
    };
    for (int64_t b = 0; b < a.tokens.batch; ++b) {
        for (int64_t g = 0; g < a.groups; ++g) {
            dk.clear();
            dv.clear();
            each_query(a, b, g, one);
            if (f.dk.base != nullptr) dk.write<T>(f.dk, b, g);
            if (f.dv.base != nullptr) dv.write<T>(f.dv, b, g);
        }
    }
}

}  // namespace

void attention_forward(const AttentionForward &f) {
    with_type(f.shape.dtype, [&]<class T>() { forward<T>(f); });
}
void attention_backward(const AttentionBackward &f) {
    with_type(f.shape.dtype, [&]<class T>() { backward<T>(f); });
}

int64_t attention_forward_workspace(const KernelSize &s, int32_t) { return doubles(s.seq); }
int64_t attention_backward_workspace(const KernelSize &s, int32_t) { return doubles(mul(s.seq, add(1, mul(2, s.d)))); }

}  // namespace mdlm::reference

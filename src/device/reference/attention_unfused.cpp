// SPDX-License-Identifier: Apache-2.0
// Attention in steps, whose scores and probabilities [b, heads, s, s] are tensors (Vaswani et al., arXiv 1706.03762).
// For a query q, over the keys j that it sees, with dropout factors f_j:
//   s_j = scale q k_j,  p_j = exp(s_j) / sum exp(s),  o = sum f_j p_j v_j
//   dp_j = f_j (do v_j),  dv_j += f_j p_j do
//   ds_j = p_j (dp_j - sum p dp)
//   dq = scale sum ds_j k_j,  dk_j += scale ds_j q
// Workspace of the two steps that make dv and dk: the sums of one group, [seq, d] doubles.
#include <cmath>

#include "device/reference/attention.hpp"
#include "device/reference/families.hpp"

namespace mdlm::reference {
namespace {

// Writes value(j) to the keys j that the query sees, and outside to the others of its row.
template <class T, class Value>
void put_row(const Attention &a, void *to, int64_t row, int64_t query, double outside, Value &&value) {
    const int64_t first = a.mask.first(query), last = a.mask.last(query);
    for (int64_t j = 0; j < a.tokens.seq; ++j)
        put<T>(to, row * a.tokens.seq + j, j >= first && j < last ? value(j) : outside);
}

template <class T>
void softmax(const AttnSoftmax &f) {
    const Attention &a = f.shape;
    each_query(a, [&](int64_t b, int64_t g, int64_t i, int64_t query) {
        const int64_t row = score_row(a, b, g, i, query), first = a.mask.first(query), last = a.mask.last(query);
        const auto score = [&](int64_t j) { return get<T>(f.scores, row * a.tokens.seq + j); };
        double most = -HUGE_VAL, total = 0.0;
        for (int64_t j = first; j < last; ++j) most = std::max(most, score(j));
        for (int64_t j = first; j < last; ++j) total += std::exp(score(j) - most);
        put_row<T>(a, f.probabilities, row, query, 0.0, [&](int64_t j) { return std::exp(score(j) - most) / total; });
    });
}

template <class T>
void context(const AttnContext &f) {
    constexpr int64_t at_once = 64;  // channels, so that random numbers are drawn once for many
    const Attention &a = f.shape;
    each_query(a, [&](int64_t b, int64_t g, int64_t i, int64_t query) {
        const int64_t row = score_row(a, b, g, i, query), to = place(f.context, a.tokens.row(query, b), g, i);
        const int64_t drawn = dropout_row(a, b, g, i, query);
        for (int64_t begin = 0; begin < a.d; begin += at_once) {
            const int64_t count = std::min(at_once, a.d - begin);
            double o[at_once] = {};
            for (int64_t j = a.mask.first(query); j < a.mask.last(query); ++j) {
                const int64_t at = row * a.tokens.seq + j, v = place(f.v, a.tokens.row(j, b), g, 0) + begin;
                const double p = get<T>(f.probabilities, at) * a.dropout.factor(uint64_t(drawn + j));
                for (int64_t c = 0; c < count; ++c) o[c] += p * get<T>(f.v.base, v + c);
            }
            for (int64_t c = 0; c < count; ++c) put<T>(f.context.base, to + begin + c, o[c]);
        }
    });
}

template <class T>
void context_backward(const AttnContextBackward &f) {
    const Attention &a = f.shape;
    KeySums dv(static_cast<double *>(f.workspace), a);
    for (int64_t b = 0; b < a.tokens.batch; ++b) {
        for (int64_t g = 0; g < a.groups; ++g) {
            if (f.dv.base != nullptr) dv.clear();
            each_query(a, b, g, [&](int64_t, int64_t, int64_t i, int64_t query) {
                const int64_t row = score_row(a, b, g, i, query),
                              dout = place(f.dcontext, a.tokens.row(query, b), g, i);
                const int64_t drawn = dropout_row(a, b, g, i, query);
                const auto factor = [&](int64_t j) { return double(a.dropout.factor(uint64_t(drawn + j))); };
                for (int64_t j = a.mask.first(query); f.dv.base != nullptr && j < a.mask.last(query); ++j) {
                    dv.add<T>(j, get<T>(f.probabilities, row * a.tokens.seq + j) * factor(j), f.dcontext, dout);
                }
                if (f.dprobabilities == nullptr) return;
                put_row<T>(a, f.dprobabilities, row, query, 0.0, [&](int64_t j) {
                    return factor(j) * dot<T>(f.dcontext, dout, f.v, place(f.v, a.tokens.row(j, b), g, 0), a.d);
                });
            });
            if (f.dv.base != nullptr) dv.write<T>(f.dv, b, g);
        }
    }
}

template <class T>
void softmax_backward(const AttnSoftmaxBackward &f) {
    const Attention &a = f.shape;
    each_query(a, [&](int64_t b, int64_t g, int64_t i, int64_t query) {
        const int64_t row = score_row(a, b, g, i, query);
        const auto p = [&](int64_t j) { return get<T>(f.probabilities, row * a.tokens.seq + j); };
        const auto dp = [&](int64_t j) { return get<T>(f.dprobabilities, row * a.tokens.seq + j); };
        double mean = 0.0;
        for (int64_t j = a.mask.first(query); j < a.mask.last(query); ++j) mean += p(j) * dp(j);
        put_row<T>(a, f.dscores, row, query, 0.0, [&](int64_t j) { return p(j) * (dp(j) - mean); });
    });
}

template <class T>
void scores_backward(const AttnScoresBackward &f) {
    const Attention &a = f.shape;
    KeySums dk(static_cast<double *>(f.workspace), a);
    for (int64_t b = 0; b < a.tokens.batch; ++b) {
        for (int64_t g = 0; g < a.groups; ++g) {
            dk.clear();
            each_query(a, b, g, [&](int64_t, int64_t, int64_t i, int64_t query) {
                const int64_t row = score_row(a, b, g, i, query), token = a.tokens.row(query, b);
                const int64_t q = place(f.q, token, g, i), to = place(f.dq, token, g, i);
                const int64_t first = a.mask.first(query), last = a.mask.last(query);
                const auto ds = [&](int64_t j) { return get<T>(f.dscores, row * a.tokens.seq + j); };
                for (int64_t j = first; f.dk.base != nullptr && j < last; ++j) dk.add<T>(j, a.scale * ds(j), f.q, q);
                for (int64_t c = 0; f.dq.base != nullptr && c < a.d; ++c) {
                    double dq = 0.0;
                    for (int64_t j = first; j < last; ++j)
                        dq += ds(j) * get<T>(f.k.base, place(f.k, a.tokens.row(j, b), g, 0) + c);
                    put<T>(f.dq.base, to + c, a.scale * dq);
                }
            });
            if (f.dk.base != nullptr) dk.write<T>(f.dk, b, g);
        }
    }
}

}  // namespace

void attn_scores(const AttnScores &f) {
    with_type(f.shape.dtype, [&]<class T>() {
        const Attention &a = f.shape;
        each_query(a, [&](int64_t b, int64_t g, int64_t i, int64_t query) {
            const int64_t q = place(f.q, a.tokens.row(query, b), g, i);
            put_row<T>(a, f.scores, score_row(a, b, g, i, query), query, -HUGE_VAL, [&](int64_t j) {
                return a.scale * dot<T>(f.q, q, f.k, place(f.k, a.tokens.row(j, b), g, 0), a.d);
            });
        });
    });
}
void attn_softmax(const AttnSoftmax &f) {
    with_type(f.shape.dtype, [&]<class T>() { softmax<T>(f); });
}
void attn_context(const AttnContext &f) {
    with_type(f.shape.dtype, [&]<class T>() { context<T>(f); });
}
void attn_context_backward(const AttnContextBackward &f) {
    with_type(f.shape.dtype, [&]<class T>() { context_backward<T>(f); });
}
void attn_softmax_backward(const AttnSoftmaxBackward &f) {
    with_type(f.shape.dtype, [&]<class T>() { softmax_backward<T>(f); });
}
void attn_scores_backward(const AttnScoresBackward &f) {
    with_type(f.shape.dtype, [&]<class T>() { scores_backward<T>(f); });
}

int64_t attn_context_backward_workspace(const KernelSize &s, int32_t) { return doubles(mul(s.seq, s.d)); }
int64_t attn_scores_backward_workspace(const KernelSize &s, int32_t) { return doubles(mul(s.seq, s.d)); }

}  // namespace mdlm::reference

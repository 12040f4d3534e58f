// SPDX-License-Identifier: Apache-2.0
// What both forms of attention share: the dot product of two heads, and sums over queries for keys and values.
#pragma once
#include "base/sizes.hpp"
#include "device/reference/common.hpp"

namespace mdlm::reference {

template <class T>
double dot(const Heads &x, int64_t at, const Heads &y, int64_t other, int64_t d) {
    return sum(d, [&](int64_t c) { return get<T>(x.base, at + c) * get<T>(y.base, other + c); });
}

// Bytes of a workspace.
inline int64_t doubles(int64_t count) { return mul(count, int64_t{sizeof(double)}); }

// Number of a query's row among [batch, heads, seq]: times seq, where its row of scores begins.
inline int64_t score_row(const Attention &a, int64_t b, int64_t g, int64_t i, int64_t query) {
    return (b * a.heads + g * (a.heads / a.groups) + i) * a.tokens.seq + query;
}

// The same where random numbers count, times seq.
inline int64_t dropout_row(const Attention &a, int64_t b, int64_t g, int64_t i, int64_t query) {
    return a.dropout_row(b, g * (a.heads / a.groups) + i, query) * a.tokens.seq;
}

// Calls body(b, g, i, query) for all queries of all heads of group g.
template <class Body>
void each_query(const Attention &a, int64_t b, int64_t g, Body &&body) {
    for (int64_t i = 0; i < a.heads / a.groups; ++i) {
        for (int64_t query = 0; query < a.tokens.seq; ++query) body(b, g, i, query);
    }
}
template <class Body>
void each_query(const Attention &a, Body &&body) {
    for (int64_t b = 0; b < a.tokens.batch; ++b) {
        for (int64_t g = 0; g < a.groups; ++g) each_query(a, b, g, body);
    }
}

// A gradient of the keys or values of one group: [seq, d] sums in scratch, over all queries of all its heads.
class KeySums {
public:
    KeySums(double *sums, const Attention &a) : sums_(sums), a_(a) {}
    void clear() { std::fill(sums_, sums_ + a_.tokens.seq * a_.d, 0.0); }
    template <class T>
    void add(int64_t key, double factor, const Heads &x, int64_t at) {
        for (int64_t c = 0; c < a_.d; ++c) sums_[key * a_.d + c] += factor * get<T>(x.base, at + c);
    }
    template <class T>
    void write(const Heads &out, int64_t b, int64_t g) const {
        for (int64_t key = 0; key < a_.tokens.seq; ++key) {
            const int64_t to = place(out, a_.tokens.row(key, b), g, 0);
            for (int64_t c = 0; c < a_.d; ++c) put<T>(out.base, to + c, sums_[key * a_.d + c]);
        }
    }

private:
    double *sums_;
    const Attention &a_;
};

}  // namespace mdlm::reference

// SPDX-License-Identifier: Apache-2.0
// Every backward kernel of attention on the reference device, against finite differences; and the fused form against
// the steps.
#include <doctest/doctest.h>

#include <cmath>

#include "support/attention_cases.hpp"
#include "support/gradient.hpp"

using namespace mdlm;
using namespace mdlm_test;

namespace {

constexpr DType f64 = DType::f64;

// One case with its tensors: q, k, v packed side by side, as their gradients.
struct Setup {
    explicit Setup(const AttentionCase &c)
        : test(c), docs(c.documents), a(c.shape(f64, docs)), rows(a.tokens.rows()), per_group(c.heads / c.groups),
          squares(c.batch * c.heads * c.seq * c.seq), qkv(Tensor::random(f64, rows * c.packed().width(), 11)),
          dqkv(f64, qkv.count()), dcontext(Tensor::random(f64, rows * c.heads * c.d, 12)),
          context(f64, dcontext.count()), row_max(f64, rows * c.heads), inverse_sum(f64, rows * c.heads) {}

    const AttentionCase &test;
    Documents docs;
    Attention a;
    int64_t rows, per_group, squares;
    Tensor qkv, dqkv, dcontext, context, row_max, inverse_sum;

    Heads q() { return test.packed().q(qkv); }
    Heads k() { return test.packed().k(qkv); }
    Heads v() { return test.packed().v(qkv); }
    Heads heads(Tensor &t) { return alone(t, test.groups, per_group, test.d); }
    bool sees(int64_t element) const {
        const int64_t query = element / test.seq % test.seq, key = element % test.seq;
        return a.mask.first(query) <= key && key < a.mask.last(query);
    }
    // Random where the query sees the key, else outside.
    Tensor scores(uint64_t seed, double outside) const {
        Tensor t = Tensor::random(f64, squares, seed);
        for (int64_t i = 0; i < squares; ++i) {
            if (!sees(i)) t.set(i, outside);
        }
        return t;
    }
    void forward(Device &device) {
        Scratch scratch(device, Kernel::attention_forward, test.size(f64));
        device.run(
            AttentionForward{a, q(), k(), v(), heads(context), row_max.data(), inverse_sum.data(), scratch.data()});
    }
    void backward(Device &device) {
        Scratch scratch(device, Kernel::attention_backward, test.size(f64));
        device.run(AttentionBackward{a, q(), k(), v(), heads(context), heads(dcontext), row_max.data(),
                                     inverse_sum.data(), test.packed().q(dqkv), test.packed().k(dqkv),
                                     test.packed().v(dqkv), scratch.data()});
    }
};

TEST_CASE("gradients: fused attention") {
    const auto device = make_reference_device();
    for (const AttentionCase &test : attention_cases()) {
        Setup s(test);
        const auto loss = [&] {
            s.forward(*device);
            return product(s.context, s.dcontext);
        };
        const auto backward = [&](bool) {
            s.forward(*device);
            s.backward(*device);
        };
        check_backward(test.name, {{"qkv", &s.qkv, &s.dqkv, false}}, loss, backward);
    }
}

TEST_CASE("gradients: attention scores") {
    const auto device = make_reference_device();
    for (const AttentionCase &test : attention_cases()) {
        if (test.seq == 1) continue;
        Setup s(test);
        Tensor scores(f64, s.squares), dscores = s.scores(21, 0.0);
        const auto loss = [&] {
            device->run(AttnScores{s.a, s.q(), s.k(), scores.data()});
            return product(scores, dscores);
        };
        const auto backward = [&](bool) {
            Scratch scratch(*device, Kernel::attn_scores_backward, test.size(f64));
            s.dqkv.fill(0.0);  // values have no part in it
            device->run(AttnScoresBackward{s.a, dscores.data(), s.q(), s.k(), test.packed().q(s.dqkv),
                                           test.packed().k(s.dqkv), scratch.data()});
        };
        check_backward(test.name, {{"qkv", &s.qkv, &s.dqkv, false}}, loss, backward);
        int64_t wrong = 0;
        for (int64_t i = 0; i < s.squares; ++i) wrong += s.sees(i) ? !std::isfinite(scores[i]) : scores[i] != -HUGE_VAL;
        CHECK_MESSAGE(wrong == 0, std::string(test.name), ": scores are -infinity outside the mask, and only there");
    }
}

TEST_CASE("gradients: attention softmax") {
    const auto device = make_reference_device();
    for (const AttentionCase &test : attention_cases()) {
        if (test.seq == 1) continue;  // the softmax of one score is 1
        Setup s(test);
        Tensor scores = s.scores(31, -HUGE_VAL), dp = s.scores(32, 0.0), p(f64, s.squares), dscores(f64, s.squares);
        const auto loss = [&] {
            device->run(AttnSoftmax{s.a, scores.data(), p.data()});
            return product(p, dp);
        };
        const auto backward = [&](bool) { device->run(AttnSoftmaxBackward{s.a, p.data(), dp.data(), dscores.data()}); };
        check_backward(test.name, {{"scores", &scores, &dscores, false}}, loss, backward);
        int64_t wrong = 0;
        for (int64_t i = 0; i < s.squares; ++i) wrong += !s.sees(i) && (p[i] != 0.0 || dscores[i] != 0.0);
        CHECK_MESSAGE(wrong == 0, std::string(test.name), ": probabilities and their gradients are 0 outside the mask");
    }
}

TEST_CASE("gradients: attention context") {
    const auto device = make_reference_device();
    for (const AttentionCase &test : attention_cases()) {
        Setup s(test);
        Tensor p = s.scores(41, 0.0), dp(f64, s.squares), v = Tensor::random(f64, s.rows * test.groups * test.d, 42),
               dv(f64, v.count());
        const Heads values = alone(v, test.groups, 1, test.d), dvalues = alone(dv, test.groups, 1, test.d);
        Scratch scratch(*device, Kernel::attn_context_backward, test.size(f64));
        const auto loss = [&] {
            device->run(AttnContext{s.a, p.data(), values, s.heads(s.context)});
            return product(s.context, s.dcontext);
        };
        const auto backward = [&](bool) {
            device->run(
                AttnContextBackward{s.a, p.data(), values, s.heads(s.dcontext), dp.data(), dvalues, scratch.data()});
        };
        check_backward(test.name, {{"probabilities", &p, &dp, false}, {"v", &v, &dv, false}}, loss, backward);

        Tensor dp_only(f64, dp.count()), dv_only(f64, dv.count());
        device->run(AttnContextBackward{s.a, p.data(), values, s.heads(s.dcontext), dp_only.data(), {}, nullptr});
        device->run(AttnContextBackward{s.a, p.data(), values, s.heads(s.dcontext), nullptr,
                                        alone(dv_only, test.groups, 1, test.d), scratch.data()});
        CHECK(dp_only == dp);
        CHECK(dv_only == dv);
    }
}

double distance(const Tensor &x, const Tensor &y) {
    double most = 0.0;
    for (int64_t i = 0; i < x.count(); ++i) {
        const double d = std::fabs(x[i] - y[i]);
        if (!(d <= most)) most = d;
    }
    return most;
}

TEST_CASE("fused attention equals its steps") {
    const auto device = make_reference_device();
    for (const AttentionCase &test : attention_cases()) {
        CAPTURE(std::string(test.name));
        Setup fused(test), steps(test);
        fused.forward(*device);
        fused.backward(*device);

        const KernelSize size = test.size(f64);
        Scratch context_scratch(*device, Kernel::attn_context_backward, size),
            scores_scratch(*device, Kernel::attn_scores_backward, size);
        Tensor p(f64, steps.squares), ds(f64, steps.squares);
        device->run(AttnScores{steps.a, steps.q(), steps.k(), p.data()});
        device->run(AttnSoftmax{steps.a, p.data(), p.data()});
        device->run(AttnContext{steps.a, p.data(), steps.v(), steps.heads(steps.context)});
        device->run(AttnContextBackward{steps.a, p.data(), steps.v(), steps.heads(steps.dcontext), ds.data(),
                                        test.packed().v(steps.dqkv), context_scratch.data()});
        device->run(AttnSoftmaxBackward{steps.a, p.data(), ds.data(), ds.data()});
        device->run(AttnScoresBackward{steps.a, ds.data(), steps.q(), steps.k(), test.packed().q(steps.dqkv),
                                       test.packed().k(steps.dqkv), scores_scratch.data()});
        CHECK(distance(fused.context, steps.context) < 1e-12);
        CHECK(distance(fused.dqkv, steps.dqkv) < 1e-12);
    }
}

TEST_CASE("masks: who sees whom, from the definitions") {
    for (const AttentionCase &test : attention_cases()) {
        Setup s(test);
        int64_t wrong = 0;
        for (int64_t i = 0; i < test.seq * test.seq; ++i) {
            const int64_t query = i / test.seq, key = i % test.seq;
            int64_t begin = 0, end = test.seq;
            for (size_t n = 0; n + 1 < test.documents.size(); ++n) {
                if (test.documents[n] <= query && query < test.documents[n + 1])
                    begin = test.documents[n], end = test.documents[n + 1];
            }
            bool sees = begin <= key && key < end;
            if (test.mask == MDLM_MASK_CAUSAL) sees = sees && key <= query;
            if (test.mask == MDLM_MASK_BLOCK_CAUSAL)
                sees = sees && (key - begin) / test.block <= (query - begin) / test.block;
            if (test.left >= 0) sees = sees && query - key <= test.left;
            if (test.right >= 0) sees = sees && key - query <= test.right;
            wrong += sees != s.sees(i);
        }
        CHECK_MESSAGE(wrong == 0, std::string(test.name));
    }
}

}  // namespace

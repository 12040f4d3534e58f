// SPDX-License-Identifier: Apache-2.0
// The backward of the norm and rotary embedding of queries and keys on the reference device, against finite
// differences.
#include <doctest/doctest.h>

#include <cmath>

#include "support/attention_cases.hpp"
#include "support/gradient.hpp"

using namespace mdlm;
using namespace mdlm_test;

namespace {

constexpr DType f64 = DType::f64;

struct RopeCase {
    const char *name;
    int64_t seq, batch;
    bool batch_first;
    int64_t heads, groups, d, rotary_dim;
    bool interleaved, norm, rms, zero_centered;
    std::vector<int32_t> documents;
};

const std::vector<RopeCase> cases = {
    {"halves", 4, 2, false, 2, 2, 6, 6, false, false, true, false, {}},
    {"interleaved", 4, 2, false, 2, 2, 6, 6, true, false, true, false, {}},
    {"halves, partial", 4, 1, false, 2, 1, 6, 4, false, false, true, false, {}},
    {"interleaved, partial, batch first", 4, 2, true, 2, 1, 6, 2, true, false, true, false, {}},
    {"nothing at all", 3, 2, false, 2, 1, 4, 0, false, false, true, false, {}},
    {"rms norm alone", 3, 2, false, 4, 2, 6, 0, false, true, true, false, {}},
    {"rms norm, halves", 4, 2, false, 4, 2, 6, 6, false, true, true, false, {}},
    {"rms norm, zero centred, interleaved, batch first", 4, 2, true, 4, 2, 6, 6, true, true, true, true, {}},
    {"layer norm, partial", 4, 2, false, 4, 2, 6, 4, false, true, false, false, {}},
    {"layer norm, zero centred, interleaved", 3, 1, false, 3, 1, 6, 6, true, true, false, true, {}},
    {"documents, halves", 7, 1, false, 2, 2, 4, 4, false, false, true, false, {0, 3, 7}},
    {"documents, rms norm, halves, partial, grouped", 7, 1, true, 4, 2, 6, 4, false, true, true, false, {0, 1, 5, 7}},
};

struct Tables {
    Tensor cos, sin;
    Tables(int64_t positions, int64_t rotary_dim)
        : cos(f64, positions * rotary_dim / 2), sin(f64, positions * rotary_dim / 2) {
        const int64_t half = rotary_dim / 2;
        for (int64_t i = 0; i < positions * half; ++i) {
            const double angle = double(i / half) * std::pow(100.0, -double(i % half) / double(half));
            cos.set(i, std::cos(angle));
            sin.set(i, std::sin(angle));
        }
    }
};

TEST_CASE("gradients: norm and rotary embedding of queries and keys") {
    const auto device = make_reference_device();
    for (const RopeCase &test : cases) {
        const Tokens tokens{test.seq, test.batch, test.batch_first};
        const int64_t rows = tokens.rows(), per_group = test.heads / test.groups;
        const Packed packed{test.heads, test.groups, test.d};
        const Documents docs(test.documents);
        Tables tables(test.seq, test.rotary_dim);
        Tensor qkv = Tensor::random(f64, rows * packed.width(), 1), dqkv(f64, qkv.count());
        Tensor q_out(f64, rows * test.heads * test.d), k_out(f64, rows * test.groups * test.d);
        Tensor dq_out = Tensor::random(f64, q_out.count(), 2), dk_out = Tensor::random(f64, k_out.count(), 3);
        std::vector<Tensor> parameters, grads;
        for (uint64_t n = 0; n < 4; ++n) {
            parameters.push_back(Tensor::random(f64, test.d, 4 + n));
            grads.emplace_back(f64, test.d);
        }
        Tensor q_rstd(f64, rows * test.heads), q_mean(f64, rows * test.heads);
        Tensor k_rstd(f64, rows * test.groups), k_mean(f64, rows * test.groups);
        const bool biases = test.norm && !test.rms;
        const auto when = [](bool there, Tensor &t) { return there ? t.data() : nullptr; };

        QkNormRope a = {};
        a.dtype = f64;
        a.tokens = tokens;
        a.mask.seq = test.seq;
        docs.set(a.mask);
        a.heads = test.heads, a.groups = test.groups, a.d = test.d, a.rotary_dim = test.rotary_dim;
        a.interleaved = test.interleaved, a.norm = test.norm, a.rms = test.rms, a.zero_centered = test.zero_centered;
        a.epsilon = 1e-2;
        a.cos = when(test.rotary_dim != 0, tables.cos), a.sin = when(test.rotary_dim != 0, tables.sin);
        a.q_weight = when(test.norm, parameters[0]), a.q_bias = when(biases, parameters[1]);
        a.k_weight = when(test.norm, parameters[2]), a.k_bias = when(biases, parameters[3]);
        a.q = packed.q(qkv), a.k = packed.k(qkv);
        a.q_out = alone(q_out, test.groups, per_group, test.d), a.k_out = alone(k_out, test.groups, 1, test.d);
        a.q_rstd = when(test.norm, q_rstd), a.k_rstd = when(test.norm, k_rstd);
        a.q_mean = when(biases, q_mean), a.k_mean = when(biases, k_mean);

        const auto loss = [&] {
            device->run(a);
            return product(q_out, dq_out) + product(k_out, dk_out);
        };
        const auto backward = [&](bool accumulate) {
            KernelSize size;
            size.dtype = f64;
            size.rows = rows;
            size.seq = test.seq, size.heads = test.heads, size.groups = test.groups, size.d = test.d;
            Scratch scratch(*device, Kernel::qk_norm_rope_backward, size);
            QkNormRopeBackward b = {};
            b.forward = a;
            b.forward.q_out = b.forward.k_out = {};
            if (!test.norm) b.forward.q = b.forward.k = {};
            b.dq_out = alone(dq_out, test.groups, per_group, test.d), b.dk_out = alone(dk_out, test.groups, 1, test.d);
            for (int64_t row = 0; row < rows; ++row) {  // values have no part in it
                for (int64_t g = 0; g < test.groups; ++g) {
                    for (int64_t c = 0; c < test.d; ++c) {
                        dqkv.set(row * packed.width() + (g * (per_group + 2) + per_group + 1) * test.d + c, 0.0);
                    }
                }
            }
            b.dq = packed.q(dqkv), b.dk = packed.k(dqkv);
            b.dq_weight = when(test.norm, grads[0]), b.dq_bias = when(biases, grads[1]);
            b.dk_weight = when(test.norm, grads[2]), b.dk_bias = when(biases, grads[3]);
            b.accumulate = accumulate;
            b.workspace = scratch.data();
            device->run(b);
        };
        std::vector<Wrt> wrt = {{"qkv", &qkv, &dqkv, false}};
        if (test.norm) {
            wrt.push_back({"q weight", &parameters[0], &grads[0], true});
            wrt.push_back({"k weight", &parameters[2], &grads[2], true});
        }
        if (biases) {
            wrt.push_back({"q bias", &parameters[1], &grads[1], true});
            wrt.push_back({"k bias", &parameters[3], &grads[3], true});
        }
        check_backward(test.name, wrt, loss, backward);
    }
}

TEST_CASE("rotary embedding: pairs turn, other channels pass, positions restart with documents") {
    const auto device = make_reference_device();
    const int64_t seq = 4, d = 6, rotary_dim = 4;
    const Documents docs({0, 1, 4});
    Tables tables(seq, rotary_dim);
    for (const bool interleaved : {false, true}) {
        Tensor q = Tensor::random(f64, seq * d, 1), k = Tensor::random(f64, seq * d, 2), q_out(f64, seq * d),
               k_out(f64, seq * d);
        QkNormRope a = {};
        a.dtype = f64;
        a.tokens = {seq, 1, false};
        a.mask.seq = seq;
        docs.set(a.mask);
        a.heads = a.groups = 1, a.d = d, a.rotary_dim = rotary_dim, a.interleaved = interleaved;
        a.cos = tables.cos.data(), a.sin = tables.sin.data();
        a.q = alone(q, 1, 1, d), a.k = alone(k, 1, 1, d), a.q_out = alone(q_out, 1, 1, d),
        a.k_out = alone(k_out, 1, 1, d);
        device->run(a);
        for (int64_t s = 0; s < seq; ++s) {
            const double t = s == 0 ? 0.0 : double(s - 1);
            for (int64_t pair = 0; pair < 2; ++pair) {
                const int64_t x = s * d + (interleaved ? 2 * pair : pair),
                              y = s * d + (interleaved ? 2 * pair + 1 : pair + 2);
                const double angle = t * std::pow(100.0, -double(pair) / 2.0);
                CHECK(q_out[x] == doctest::Approx(q[x] * std::cos(angle) - q[y] * std::sin(angle)).epsilon(1e-14));
                CHECK(q_out[y] == doctest::Approx(q[y] * std::cos(angle) + q[x] * std::sin(angle)).epsilon(1e-14));
            }
            for (int64_t c = rotary_dim; c < d; ++c) CHECK(k_out[s * d + c] == k[s * d + c]);
        }
    }
}

}  // namespace

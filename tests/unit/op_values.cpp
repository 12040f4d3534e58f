// SPDX-License-Identifier: Apache-2.0
// Forward kernels of the reference device against the definitions, written out once more without any of its code.
// Rotary embedding and activations: op_gradients_rope.cpp, op_gradients.cpp.
#include <doctest/doctest.h>

#include <cmath>

#include "support/attention_cases.hpp"

using namespace mdlm;
using namespace mdlm_test;

namespace {

constexpr DType f64 = DType::f64;

bool near(double got, double want) { return std::fabs(got - want) <= 1e-13 * (1.0 + std::fabs(want)); }

TEST_CASE("values: norms") {
    const auto device = make_reference_device();
    // x = 1, 2, 3, 6: mean 3, variance 3.5, mean square 12.5.
    const double values[] = {1, 2, 3, 6}, gamma[] = {1, -2, 0.5, 3}, shift[] = {0.1, 0.2, 0.3, 0.4}, epsilon = 0.5;
    for (const bool rms : {false, true}) {
        for (const bool zero_centered : {false, true}) {
            Tensor x(f64, 4), weight(f64, 4), bias(f64, 4), y(f64, 4), rstd(f64, 1), mean(f64, 1);
            for (int64_t c = 0; c < 4; ++c) {
                x.set(c, values[c]);
                weight.set(c, gamma[c] - (zero_centered ? 1.0 : 0.0));
                bias.set(c, shift[c]);
            }
            device->run(NormForward{f64, 1, 4, rms, zero_centered, epsilon, x.data(), weight.data(),
                                    rms ? nullptr : bias.data(), y.data(), rstd.data(), rms ? nullptr : mean.data()});
            const double root = rms ? std::sqrt(13.0) : 2.0;
            for (int64_t c = 0; c < 4; ++c) {
                CHECK(near(y[c], rms ? values[c] / root * gamma[c] : (values[c] - 3.0) / root * gamma[c] + shift[c]));
            }
            CHECK(near(rstd[0], 1.0 / root));
            if (!rms) CHECK(mean[0] == 3.0);
        }
    }
}

TEST_CASE("values: linear") {
    const auto device = make_reference_device();
    // [1 2 3; 4 5 6] times the transpose of [1 0 -1; 2 1 0], plus [10 20].
    const double in[] = {1, 2, 3, 4, 5, 6}, weights[] = {1, 0, -1, 2, 1, 0}, want[] = {8, 24, 8, 33};
    Tensor x(f64, 6), w(f64, 6), bias(f64, 2), y(f64, 4);
    for (int64_t i = 0; i < 6; ++i) x.set(i, in[i]), w.set(i, weights[i]);
    bias.set(0, 10.0), bias.set(1, 20.0);
    device->run(LinearForward{f64, 2, 2, 3, x.data(), w.data(), bias.data(), y.data(), nullptr});
    for (int64_t i = 0; i < 4; ++i) CHECK(y[i] == want[i]);
}

TEST_CASE("values: bias, dropout and add") {
    const auto device = make_reference_device();
    const int64_t seq = 3, batch = 2, width = 5;
    const Dropout dropout = dropout_of(0.4);
    for (const bool batch_first : {false, true}) {
        Tensor x = Tensor::random(f64, seq * batch * width, 1), bias = Tensor::random(f64, width, 2);
        Tensor residual = Tensor::random(f64, x.count(), 3), y(f64, x.count());
        device->run(BiasDropoutAdd{
            f64, {seq, batch, batch_first}, width, dropout, x.data(), bias.data(), residual.data(), y.data()});
        for (int64_t s = 0; s < seq; ++s) {
            for (int64_t b = 0; b < batch; ++b) {
                for (int64_t c = 0; c < width; ++c) {
                    const int64_t at = (batch_first ? b * seq + s : s * batch + b) * width + c;
                    const double factor =
                        dropout.keeps(uint64_t((s * batch + b) * width + c)) ? double(float(1.0 / 0.6)) : 0.0;
                    CHECK(near(y[at], residual[at] + factor * (x[at] + bias[c])));
                }
            }
        }
    }
}

TEST_CASE("values: attention, and the statistics of its rows") {
    const auto device = make_reference_device();
    for (const AttentionCase &test : attention_cases()) {
        const Documents docs(test.documents);
        const Attention a = test.shape(f64, docs);
        const Packed packed = test.packed();
        const int64_t s = test.seq, d = test.d, per_group = packed.per_group(), rows = s * test.batch;
        Tensor qkv = Tensor::random(f64, rows * packed.width(), 1), context(f64, rows * test.heads * d);
        Tensor row_max(f64, rows * test.heads), inverse_sum(f64, rows * test.heads);
        Scratch scratch(*device, Kernel::attention_forward, test.size(f64));
        device->run(AttentionForward{a, packed.q(qkv), packed.k(qkv), packed.v(qkv),
                                     alone(context, test.groups, per_group, d), row_max.data(), inverse_sum.data(),
                                     scratch.data()});
        const auto row = [&](int64_t t, int64_t b) { return test.batch_first ? b * s + t : t * test.batch + b; };
        int64_t wrong = 0;
        for (int64_t b = 0; b < test.batch; ++b) {
            for (int64_t head = 0; head < test.heads; ++head) {
                const int64_t g = head / per_group, slot = g * (per_group + 2);
                const auto channel = [&](int64_t t, int64_t place, int64_t c) {
                    return qkv[row(t, b) * packed.width() + place * d + c];
                };
                for (int64_t i = 0; i < s; ++i) {
                    double total = 0.0, largest = -INFINITY;
                    std::vector<double> e(size_t(s), 0.0);
                    for (int64_t j = 0; j < s; ++j) {
                        double score = 0.0;
                        for (int64_t c = 0; c < d; ++c)
                            score += channel(i, slot + head % per_group, c) * channel(j, slot + per_group, c);
                        if (j < a.mask.first(i) || j >= a.mask.last(i)) continue;
                        e[size_t(j)] = std::exp(0.7 * score);
                        total += e[size_t(j)];
                        largest = std::max(largest, 0.7 * score);
                    }
                    const int64_t at = (b * test.heads + head) * s + i;
                    wrong += !near(row_max[at], largest) + !near(inverse_sum[at], std::exp(largest) / total);
                    for (int64_t c = 0; c < d; ++c) {
                        double o = 0.0;
                        for (int64_t j = 0; j < s; ++j) {
                            const auto index = uint64_t(((b * test.heads + head) * s + i) * s + j);
                            o += e[size_t(j)] / total * a.dropout.factor(index) * channel(j, slot + per_group + 1, c);
                        }
                        wrong += !near(context[(row(i, b) * test.heads + head) * d + c], o);
                    }
                }
            }
        }
        CHECK_MESSAGE(wrong == 0, std::string(test.name));
    }
}

}  // namespace

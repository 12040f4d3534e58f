// SPDX-License-Identifier: Apache-2.0
// NaN, infinities, the largest and smallest numbers and denormals in what the CPU device does element by element.
#include "device/cpu/spans.hpp"
#include "unit/cpu_special.hpp"

using namespace mdlm;
using namespace mdlm_test;

TEST_CASE("cpu special: bias, dropout and residual") {
    Devices devices;
    const int64_t seq = 3, width = 41, count = 2 * seq * width;
    for (const DType type : types)
        for (const double probability : {0.0, 0.3}) {
            const Tokens tokens{seq, 2, false};
            const Dropout dropout = dropout_of(probability);
            check_special(devices, name("bias_dropout_add", type), [=](Run &r, Inputs &in) {
                void *x = in(type, count, 1), *bias = in(type, width, 2), *residual = in(type, count, 3);
                r.device.run(BiasDropoutAdd{type, tokens, width, dropout, x, bias, residual, r.out(type, count, 1)});
            });
            check_special(devices, name("dropout_backward", type), [=](Run &r, Inputs &in) {
                r.device.run(DropoutBackward{type, tokens, width, dropout, in(type, count, 1), r.out(type, count, 1)});
            });
        }
}

TEST_CASE("cpu special: activations at and past their limits") {
    Devices devices;
    std::vector<double> points = {not_a_number, 0.0};
    const size_t ordinary = 2 + 2 * 8;  // of points: those whose values are neither tiny nor about to be
    for (const double x : {0.5,  5.0, 1e3,  1e10, 1e20, 1e30, 3e38, infinity, 1e-45, 1e-42, 1.2e-38, 1e-30,
                           1e-3, 9.9, 10.1, 12.9, 13.1, 20.0, 40.0, 80.0,     86.0,  89.0,  104.0})
        points.push_back(x), points.push_back(-x);
    for (const DType type : types)
        for (mdlm_activation kind = MDLM_ACT_GELU; kind <= MDLM_ACT_GEGLU; ++kind) {
            const bool gated = kind == MDLM_ACT_SWIGLU || kind == MDLM_ACT_GEGLU;
            for (const double up : {1.0, -2.0, 1e30, 3e38, 1e-30, 1e-42, 0.0, not_a_number, infinity, -infinity})
                for (const double dm : {1.0, -2.0, 1e30, 3e38, 1e-30, 0.0, not_a_number, infinity}) {
                    if (!gated && up != 1.0) continue;
                    // A tiny number times an infinite one depends on when it has become 0.
                    const bool all = std::isfinite(up * dm) && std::fabs(up * dm) < 1e38;
                    const auto count = int64_t(all ? points.size() : ordinary);
                    const auto inputs = [=, &points](Run &r) {
                        void *g = r.in(type, (gated ? 2 : 1) * count, 1);
                        for (int64_t i = 0; i < count; ++i) {
                            store(type, g, i, points[size_t(i)]);
                            if (gated) store(type, g, count + i, up);
                        }
                        return g;
                    };
                    // What is not yet its limit, but counts as it: less than 1e-36.
                    const auto compare = [=](Block &seen, Block &expected) {
                        double floor = 1e-36;
                        for (const double factor : {up, dm})
                            if (std::isfinite(factor)) floor *= std::max(1.0, std::fabs(factor));
                        check_rows(seen, expected, 2e-5, floor);
                    };
                    const std::string what =
                        name("activation", type, kind) + " up " + std::to_string(up) + " dm " + std::to_string(dm);
                    if (dm == 1.0)
                        check_case(
                            devices, what,
                            [=](Run &r) {
                                r.device.run(ActivationForward{type, kind, 1, count, inputs(r), r.out(type, count, 1)});
                            },
                            compare);
                    check_case(
                        devices, what,
                        [=](Run &r) {
                            void *g = inputs(r), *gradient = r.in(type, count, 2);
                            for (int64_t i = 0; i < count; ++i) store(type, gradient, i, dm);
                            r.device.run(ActivationBackward{type, kind, 1, count, g, gradient,
                                                            r.out(type, (gated ? 2 : 1) * count, 1)});
                        },
                        compare);
                }
        }
}

TEST_CASE("cpu special: e^x, and bf16 there and back") {
    constexpr int64_t many = 67;  // more than any vector, and not whole vectors
    for (const double x : {0.0, 1.0, -1.0, 80.0, -80.0, 1e-42, not_a_number}) {
        float values[many];
        std::fill_n(values, many, float(x));
        cpu::exps(values, many);
        for (const float v : values) {
            CAPTURE(x);
            CHECK((std::isnan(x) ? std::isnan(v) : std::fabs(v / std::exp(x) - 1.0) < 5e-7));
        }
    }
    for (const double x : {100.0, 3e38, infinity, -100.0, -3e38, -infinity}) {
        float values[many];
        std::fill_n(values, many, float(x));
        cpu::exps(values, many);
        CAPTURE(x);
        for (const float v : values) CHECK((x > 0 ? v > 1.5e38f : v >= 0.0f && v < 2e-38f));
    }
    // Every half, and floats about each: halfway to the next, and a bit to either side.
    std::vector<float> floats;
    for (uint32_t high = 0; high < 65536; ++high)
        for (const uint32_t low : {0u, 1u, 0x7fffu, 0x8000u, 0x8001u, 0xffffu})
            floats.push_back(std::bit_cast<float>(high << 16 | low));
    const auto count = int64_t(floats.size());
    std::vector<bf16> narrow(floats.size());
    std::vector<float> back(floats.size());
    cpu::write(DType::bf16, narrow.data(), 0, count, floats.data());
    cpu::read(DType::bf16, narrow.data(), 0, count, back.data());
    int64_t wrong = 0;
    for (size_t i = 0; i < floats.size(); ++i) {
        const bf16 expected(floats[i]);
        wrong += std::isnan(floats[i]) ? !std::isnan(float(narrow[i])) || !std::isnan(back[i])
                                       : expected.bits != narrow[i].bits ||
                                             std::bit_cast<uint32_t>(back[i]) != uint32_t(expected.bits) << 16;
    }
    CHECK(wrong == 0);
}

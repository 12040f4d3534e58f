// SPDX-License-Identifier: Apache-2.0
// NaN, infinities, the largest and smallest numbers and denormals, one in each input of each kernel of the CPU device
// but attention: what the reference device makes of them. Runs with every instruction set that tests/meson.build names.
#include "unit/cpu_case.hpp"

#include <limits>

#include "device/cpu/spans.hpp"
#include "support/attention_cases.hpp"

using namespace mdlm;
using namespace mdlm_test;

namespace {

constexpr DType types[] = {DType::f32, DType::bf16};
constexpr double not_a_number = std::numeric_limits<double>::quiet_NaN(),
                 infinity = std::numeric_limits<double>::infinity();
constexpr double specials[] = {not_a_number, infinity, -infinity, 3e38, -3e38, 1.2e-38, -1e-42};

// Makes inputs; the one whose turn it is has a special value in it.
class Inputs {
public:
    Inputs(Run &run, double value, int turn) : run_(run), value_(value), turn_(turn) {}
    void *operator()(DType type, int64_t count, uint64_t seed, double scale = 1.0, double middle = 0.0) {
        void *p = run_.in(type, count, seed, scale, middle);
        if (made_++ == turn_) store(type, p, count / 2, value_);
        return p;
    }
    int made() const { return made_; }

private:
    Run &run_;
    double value_;
    int turn_, made_ = 0;
};
using Kernels = std::function<void(Run &, Inputs &)>;

// Inputs are about 1 but for the special one, so that `floor` is what sums of the others may be off by.
void check_special(Devices &devices, const std::string &what, const Kernels &body, double floor = 1e-4,
                   double largest = 3e38) {
    Run counted(*devices.reference, *devices.reference, 0);
    Inputs none(counted, 0.0, -1);
    body(counted, none);
    for (int turn = 0; turn < none.made(); ++turn)
        for (const double special : specials) {
            const double value = std::isfinite(special) ? std::clamp(special, -largest, largest) : special;
            check_case(
                devices, what + ", input " + std::to_string(turn) + " has " + std::to_string(value),
                [&](Run &r) {
                    Inputs inputs(r, value, turn);
                    body(r, inputs);
                },
                [floor](Block &seen, Block &expected) { check_rows(seen, expected, 2e-5, floor); });
        }
}

std::string name(const char *kernel, DType type, int kind = 0) {
    return std::string(kernel).append(" ").append(name_of(type)).append(" kind ").append(std::to_string(kind));
}
KernelSize size_of_case(DType type, int64_t rows, int64_t n, int64_t k = 0, bool bias = false,
                        bool accumulate = false) {
    KernelSize s;
    s.dtype = type, s.rows = rows, s.n = n, s.k = k, s.bias = bias, s.accumulate = accumulate;
    return s;
}

}  // namespace

TEST_CASE("cpu special: linears") {
    const int64_t m = 37, n = 70, k = 19;
    for (const mdlm_matmul matmul : {MDLM_MATMUL_OWN, MDLM_MATMUL_ONEDNN}) {
        if (matmul == MDLM_MATMUL_ONEDNN && !cpu_has_onednn()) continue;
        Devices devices(matmul);
        CAPTURE(matmul);
        for (const DType type : types) {
            check_special(devices, name("forward", type), [=](Run &r, Inputs &in) {
                void *x = in(type, m * k, 1), *w = in(type, n * k, 2), *bias = in(type, n, 3);
                r.device.linear_forward({type, m, n, k, x, w, bias, r.out(type, m * n, 1),
                                         r.scratch(Kernel::linear_forward, size_of_case(type, m, n, k, true))});
            });
            check_special(devices, name("dgrad", type), [=](Run &r, Inputs &in) {
                void *dy = in(type, m * n, 1), *w = in(type, n * k, 2);
                r.device.linear_dgrad({type, m, n, k, dy, w, r.out(type, m * k, 1),
                                       r.scratch(Kernel::linear_dgrad, size_of_case(type, m, n, k))});
            });
            check_special(devices, name("wgrad", type), [=](Run &r, Inputs &in) {
                void *dy = in(type, m * n, 1), *x = in(type, m * k, 2);
                r.device.linear_wgrad({type, m, n, k, dy, x, r.out(DType::f32, n * k, 1), false,
                                       r.scratch(Kernel::linear_wgrad, size_of_case(type, m, n, k))});
            });
        }
    }
}

TEST_CASE("cpu special: norms and sums over rows") {
    Devices devices;
    const int64_t rows = 9, width = 41;
    for (const DType type : types) {
        const KernelSize size = size_of_case(type, rows, width);
        check_special(devices, name("bias_grad", type), [=](Run &r, Inputs &in) {
            r.device.bias_grad({type, rows, width, in(type, rows * width, 1), r.out(DType::f32, width, 1), false,
                                r.scratch(Kernel::bias_grad, size)});
        });
        for (const int kind : {0, 1, 2, 3}) {
            const bool rms = (kind & 1) != 0, centered = (kind & 2) != 0;
            check_special(
                devices, name("norm_forward", type, kind),
                [=](Run &r, Inputs &in) {
                    void *x = in(type, rows * width, 1, 2.0, 0.5), *w = in(type, width, 2),
                         *bias = rms ? nullptr : in(type, width, 3);
                    r.device.norm_forward({type, rows, width, rms, centered, 1e-5, x, w, bias,
                                           r.out(type, rows * width, width), r.out(DType::f32, rows, 1),
                                           rms ? nullptr : r.out(DType::f32, rows, 1)});
                },
                1e-36);
            check_special(devices, name("norm_backward", type, kind), [=](Run &r, Inputs &in) {
                void *x = in(type, rows * width, 1, 2.0, 0.5), *w = in(type, width, 2), *dy = in(type, rows * width, 3),
                     *add = in(type, rows * width, 4);
                void *rstd = r.in(DType::f32, rows, 5), *mean = rms ? nullptr : r.in(DType::f32, rows, 6),
                     *y = r.in(type, rows * width, 7);
                r.reference.norm_forward({type, rows, width, rms, centered, 1e-5, x, w,
                                          rms ? nullptr : r.in(type, width, 8), y, rstd, mean});
                r.device.norm_backward({type, rows, width, rms, centered, 1e-5, dy, x, w, rstd, mean, add,
                                        r.out(type, rows * width, width), r.out(DType::f32, width, 1),
                                        rms ? nullptr : r.out(DType::f32, width, 1), false,
                                        r.scratch(Kernel::norm_backward, size)});
            });
        }
    }
}

TEST_CASE("cpu special: qk norm and rotary") {
    Devices devices;
    const int64_t seq = 5, heads = 4, groups = 2, d = 22, rotary = 18, slots = heads + groups;
    for (const DType type : types)
        for (int kind = 0; kind < 8; ++kind) {
            const bool norm = (kind & 1) != 0, rms = (kind & 2) != 0, interleaved = (kind & 4) != 0;
            const auto arguments = [=](Run &r, Inputs &in, void *out) {
                const auto parameter = [&](bool there, uint64_t seed) { return there ? in(type, d, seed) : nullptr; };
                const auto statistic = [&](bool there, int64_t count) {
                    return there ? r.in(DType::f32, count, 1) : nullptr;
                };
                // Per group its query heads, then its key.
                const auto part = [&](void *base, int64_t slot) {
                    return Heads{static_cast<char *>(base) + slot * d * size_of(type), slots * d,
                                 (heads / groups + 1) * d, d};
                };
                Mask mask;
                mask.seq = seq;
                void *qk = in(type, seq * slots * d, 1);
                QkNormRope a{type,
                             {seq, 1, false},
                             mask,
                             heads,
                             groups,
                             d,
                             rotary,
                             interleaved,
                             r.in(DType::f32, seq * rotary / 2, 2),
                             r.in(DType::f32, seq * rotary / 2, 3),
                             norm,
                             rms,
                             false,
                             1e-5,
                             parameter(norm, 4),
                             parameter(norm && !rms, 5),
                             parameter(norm, 6),
                             parameter(norm && !rms, 7),
                             part(qk, 0),
                             part(qk, heads / groups),
                             part(out, 0),
                             part(out, heads / groups),
                             nullptr,
                             nullptr,
                             nullptr,
                             nullptr};
                a.q_rstd = statistic(norm, seq * heads), a.k_rstd = statistic(norm, seq * groups);
                a.q_mean = statistic(norm && !rms, seq * heads), a.k_mean = statistic(norm && !rms, seq * groups);
                return a;
            };
            check_special(
                devices, name("forward", type, kind),
                [=](Run &r, Inputs &in) { r.device.qk_norm_rope(arguments(r, in, r.out(type, seq * slots * d, d))); },
                1e-4, 3e37);  // a normed channel times its weight, before it turns, is still a float
            check_special(devices, name("backward", type, kind), [=](Run &r, Inputs &in) {
                QkNormRopeBackward b{};
                b.forward = arguments(r, in, r.in(type, seq * slots * d, 9));
                r.reference.qk_norm_rope(b.forward);
                if (!norm) b.forward.q = b.forward.k = {};
                void *from = in(type, seq * slots * d, 10), *to = r.out(type, seq * slots * d, d);
                const auto part = [&](void *base, int64_t slot) {
                    return Heads{static_cast<char *>(base) + slot * d * size_of(type), slots * d,
                                 (heads / groups + 1) * d, d};
                };
                b.dq_out = part(from, 0), b.dk_out = part(from, heads / groups), b.dq = part(to, 0),
                b.dk = part(to, heads / groups);
                if (norm) b.dq_weight = r.out(DType::f32, d, 1), b.dk_weight = r.out(DType::f32, d, 1);
                if (norm && !rms) b.dq_bias = r.out(DType::f32, d, 1), b.dk_bias = r.out(DType::f32, d, 1);
                KernelSize size = size_of_case(type, seq, 0);
                size.heads = heads, size.groups = groups, size.d = d;
                b.workspace = r.scratch(Kernel::qk_norm_rope_backward, size);
                r.device.qk_norm_rope_backward(b);
            });
        }
}

TEST_CASE("cpu special: bias, dropout and residual") {
    Devices devices;
    const int64_t seq = 3, width = 41, count = 2 * seq * width;
    for (const DType type : types)
        for (const double probability : {0.0, 0.3}) {
            const Tokens tokens{seq, 2, false};
            const Dropout dropout = dropout_of(probability);
            check_special(devices, name("bias_dropout_add", type), [=](Run &r, Inputs &in) {
                void *x = in(type, count, 1), *bias = in(type, width, 2), *residual = in(type, count, 3);
                r.device.bias_dropout_add({type, tokens, width, dropout, x, bias, residual, r.out(type, count, 1)});
            });
            check_special(devices, name("dropout_backward", type), [=](Run &r, Inputs &in) {
                r.device.dropout_backward({type, tokens, width, dropout, in(type, count, 1), r.out(type, count, 1)});
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
                                r.device.activation_forward({type, kind, 1, count, inputs(r), r.out(type, count, 1)});
                            },
                            compare);
                    check_case(
                        devices, what,
                        [=](Run &r) {
                            void *g = inputs(r), *gradient = r.in(type, count, 2);
                            for (int64_t i = 0; i < count; ++i) store(type, gradient, i, dm);
                            r.device.activation_backward(
                                {type, kind, 1, count, g, gradient, r.out(type, (gated ? 2 : 1) * count, 1)});
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

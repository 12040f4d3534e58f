// SPDX-License-Identifier: Apache-2.0
// NaN, infinities, the largest and smallest numbers and denormals, one in each input of each kernel of the CPU device
// but attention: what the reference device makes of them. Runs with every instruction set that tests/meson.build names.
#include "unit/cpu_special.hpp"

using namespace mdlm;
using namespace mdlm_test;

TEST_CASE("cpu special: linears") {
    const int64_t m = 37, n = 70, k = 19;
    for (const mdlm_matmul matmul : {MDLM_MATMUL_OWN, MDLM_MATMUL_ONEDNN}) {
        if (matmul == MDLM_MATMUL_ONEDNN && !cpu_has_onednn()) continue;
        Devices devices(matmul);
        CAPTURE(matmul);
        for (const DType type : types) {
            check_special(devices, name("forward", type), [=](Run &r, Inputs &in) {
                void *x = in(type, m * k, 1), *w = in(type, n * k, 2), *bias = in(type, n, 3);
                r.device.run(LinearForward{type, m, n, k, x, w, bias, r.out(type, m * n, 1),
                                           r.scratch(Kernel::linear_forward, size_of_case(type, m, n, k, true))});
            });
            check_special(devices, name("dgrad", type), [=](Run &r, Inputs &in) {
                void *dy = in(type, m * n, 1), *w = in(type, n * k, 2);
                r.device.run(LinearDgrad{type, m, n, k, dy, w, r.out(type, m * k, 1),
                                         r.scratch(Kernel::linear_dgrad, size_of_case(type, m, n, k))});
            });
            check_special(devices, name("wgrad", type), [=](Run &r, Inputs &in) {
                void *dy = in(type, m * n, 1), *x = in(type, m * k, 2);
                r.device.run(LinearWgrad{type, m, n, k, dy, x, r.out(DType::f32, n * k, 1), false,
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
            r.device.run(BiasGrad{type, rows, width, in(type, rows * width, 1), r.out(DType::f32, width, 1), false,
                                  r.scratch(Kernel::bias_grad, size)});
        });
        for (const int kind : {0, 1, 2, 3}) {
            const bool rms = (kind & 1) != 0, centered = (kind & 2) != 0;
            check_special(
                devices, name("norm_forward", type, kind),
                [=](Run &r, Inputs &in) {
                    void *x = in(type, rows * width, 1, 2.0, 0.5), *w = in(type, width, 2),
                         *bias = rms ? nullptr : in(type, width, 3);
                    r.device.run(NormForward{type, rows, width, rms, centered, 1e-5, x, w, bias,
                                             r.out(type, rows * width, width), r.out(DType::f32, rows, 1),
                                             rms ? nullptr : r.out(DType::f32, rows, 1)});
                },
                1e-36);
            check_special(devices, name("norm_backward", type, kind), [=](Run &r, Inputs &in) {
                void *x = in(type, rows * width, 1, 2.0, 0.5), *w = in(type, width, 2), *dy = in(type, rows * width, 3),
                     *add = in(type, rows * width, 4);
                void *rstd = r.in(DType::f32, rows, 5), *mean = rms ? nullptr : r.in(DType::f32, rows, 6),
                     *y = r.in(type, rows * width, 7);
                r.reference.run(NormForward{type, rows, width, rms, centered, 1e-5, x, w,
                                            rms ? nullptr : r.in(type, width, 8), y, rstd, mean});
                r.device.run(NormBackward{type, rows, width, rms, centered, 1e-5, dy, x, w, rstd, mean, add,
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
                [=](Run &r, Inputs &in) { r.device.run(arguments(r, in, r.out(type, seq * slots * d, d))); }, 1e-4,
                3e37);  // a normed channel times its weight, before it turns, is still a float
            check_special(devices, name("backward", type, kind), [=](Run &r, Inputs &in) {
                QkNormRopeBackward b{};
                b.forward = arguments(r, in, r.in(type, seq * slots * d, 9));
                r.reference.run(b.forward);
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
                r.device.run(b);
            });
        }
}

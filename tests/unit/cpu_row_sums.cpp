// SPDX-License-Identifier: Apache-2.0
// Gradients that sum over tokens, at a million of them: those of norms, of biases and of qk-norms.
#include "unit/cpu_case.hpp"

#include "support/attention_cases.hpp"

using namespace mdlm;
using namespace mdlm_test;

namespace {

constexpr int64_t tokens = int64_t{1} << 20, width = 2;
constexpr double part = 2e-6;

// On one device, and to the bit with two more.
void check(const std::string &what, const Case &body) {
    static Devices devices;
    CAPTURE(what);
    Run expected(*devices.reference, *devices.reference, 0), first(*devices.cpus[0], *devices.reference, 0);
    body(expected), body(first);
    for (size_t o = 0; o < first.outputs.size(); ++o) {
        CAPTURE(o);
        double largest = 0.0, worst = 0.0;
        for (int64_t i = 0; i < expected.outputs[o]->count(); ++i) {
            largest = std::max(largest, std::fabs((*expected.outputs[o])[i]));
            worst = std::max(worst, std::fabs((*first.outputs[o])[i] - (*expected.outputs[o])[i]));
        }
        CHECK(worst <= part * largest);
    }
    for (const size_t d : {devices.cpus.size() / 2, devices.cpus.size() - 1}) {
        Run again(*devices.cpus[d], *devices.reference, 1);
        body(again);
        for (size_t o = 0; o < first.outputs.size(); ++o)
            CHECK(std::memcmp(again.outputs[o]->data(), first.outputs[o]->data(), first.outputs[o]->bytes()) == 0);
    }
}

KernelSize size_of_case(DType type) {
    KernelSize s;
    s.dtype = type, s.rows = tokens, s.n = width;
    return s;
}

// The sum of what all have in common grows with the tokens, and so does an error that goes one way; of the rest it
// grows with their root.
constexpr double middles[] = {0.0, 0.7};

}  // namespace

TEST_CASE("cpu sums: gradients of biases over a million tokens are within 2e-6") {
    for (const DType type : {DType::f32, DType::bf16})
        for (const double middle : middles)
            for (const bool accumulate : {false, true})
                check(std::string(name_of(type)), [=](Run &r) {
                    void *db = accumulate ? r.both(DType::f32, width, 2) : r.out(DType::f32, width);
                    r.device.run(BiasGrad{type, tokens, width, r.in(type, tokens * width, 1, 1.0, middle), db,
                                          accumulate, r.scratch(Kernel::bias_grad, size_of_case(type))});
                });
}

TEST_CASE("cpu sums: gradients of norms over a million tokens are within 2e-6") {
    for (const double middle : middles)
        for (const bool rms : {false, true})
            check(rms ? "rms" : "layer norm", [=](Run &r) {
                const DType type = DType::f32;
                void *x = r.in(type, tokens * width, 1, 1.0, 0.2), *rstd = r.in(type, tokens, 2, 0.5, 1.5),
                     *mean = rms ? nullptr : r.in(type, tokens, 3, 0.3);
                r.device.run(NormBackward{
                    type, tokens, width, rms, false, 1e-5, r.in(type, tokens * width, 4, 1.0, middle), x,
                    r.in(type, width, 5), rstd, mean, nullptr, nullptr, r.out(type, width),
                    rms ? nullptr : r.out(type, width), false, r.scratch(Kernel::norm_backward, size_of_case(type))});
            });
}

TEST_CASE("cpu sums: gradients of qk norms over a million heads are within 2e-6") {
    const int64_t heads = 32, groups = 2, seq = tokens / heads;
    for (const double middle : middles)
        check("qk", [=](Run &r) {
            const DType type = DType::f32;
            const auto place = [&](void *base, int64_t kind) {
                return Heads{static_cast<float *>(base) + kind * heads * width, (heads + groups) * width,
                             kind == 0 ? heads / groups * width : width, width};
            };
            const int64_t count = seq * (heads + groups) * width;
            void *x = r.in(type, count, 1, 1.0, 0.2), *dy = r.in(type, count, 2, 1.0, middle),
                 *dx = r.in(type, count, 3);
            Mask mask;
            mask.seq = seq;
            QkNormRope a{type,
                         {seq, 1, false},
                         mask,
                         heads,
                         groups,
                         width,
                         0,
                         false,
                         nullptr,
                         nullptr,
                         true,
                         false,
                         false,
                         1e-5,
                         r.in(type, width, 4),
                         r.in(type, width, 5),
                         r.in(type, width, 6),
                         r.in(type, width, 7),
                         place(x, 0),
                         place(x, 1),
                         {},
                         {},
                         r.in(type, seq * heads, 8, 0.5, 1.5),
                         r.in(type, seq * groups, 9, 0.5, 1.5),
                         r.in(type, seq * heads, 10, 0.3),
                         r.in(type, seq * groups, 11, 0.3)};
            KernelSize s = size_of_case(type);
            s.rows = seq, s.heads = heads, s.groups = groups, s.d = width;
            r.device.run(QkNormRopeBackward{a, place(dy, 0), place(dy, 1), place(dx, 0), place(dx, 1),
                                            r.out(type, width), r.out(type, width), r.out(type, width),
                                            r.out(type, width), false, r.scratch(Kernel::qk_norm_rope_backward, s)});
        });
}

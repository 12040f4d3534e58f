// SPDX-License-Identifier: Apache-2.0
// Norms of extreme rows on the CPU device against the reference device: values whose squares float cannot hold, rows
// that vary by less than their mean is rounded by, and gradients whose products overflow.
#include "unit/cpu_case.hpp"

#include "support/attention_cases.hpp"

using namespace mdlm;
using namespace mdlm_test;

namespace {

struct Row {
    double middle, scale;  // values in middle + scale [-1, 1]
    double outlier;        // the value of one channel, unless it is 0
    double gradient;       // scale of dy
};
constexpr Row rows[] = {
    {0, 1, 0, 1},         {0, 1e18, 0, 1},    {0, 1e19, 0, 1},           {0, 1e25, 0, 1},
    {0, 3e38, 0, 1},      {3e38, 0, 0, 1},    {2e38, 1e38, 0, 1},        {0, 1e-10, 0, 1},
    {0, 1e-18, 0, 1},     {0, 1e-20, 0, 1},   {0, 1e-30, 0, 1},          {0, 1e-38, 0, 1},
    {0, 1e-44, 0, 1},     {0, 0, 0, 1},       {10.7, 0, 0, 1},           {-10.7, 0, 0, 1},
    {12345.678, 0, 0, 1}, {1e-30, 0, 0, 1},   {12345.678, 1.0, 0, 1},    {12345.678, 1e-2, 0, 1},
    {1e6, 1.0, 0, 1},     {1e20, 1e15, 0, 1}, {10.7, 1e-3, 0, 1},        {100, 1, 0, 1},
    {0, 1, 1e20, 1},      {0, 1, -3e38, 1},   {0, 1, 0, 1e30},           {0, 1, 0, 3e38},
    {0, 1, 0, 1e-30},     {0, 1e20, 0, 1e38}, {12345.678, 1.0, 0, 1e38},
};
constexpr int64_t row_count = sizeof rows / sizeof *rows;
constexpr double part = 2e-5;

void fill(DType type, void *to, int64_t width, bool gradient) {
    for (int64_t r = 0; r < row_count; ++r)
        for (int64_t c = 0; c < width; ++c) {
            const double u = uniform(gradient ? 50 : 40, uint64_t(r * width + c));
            double v = gradient ? u * rows[r].gradient : rows[r].middle + rows[r].scale * u;
            if (!gradient && rows[r].outlier != 0.0 && c == width / 3) v = rows[r].outlier;
            store(type, to, r * width + c, v);
        }
}

// What a mean is off by counts beside the row's spread.
void beside_spread(void *to, void *mean, void *rstd) {
    for (int64_t i = 0; i < row_count; ++i) {
        const double spreads = load(DType::f32, mean, i) * load(DType::f32, rstd, i);
        store(DType::f32, to, i, spreads / (1.0 + std::fabs(spreads)));
    }
}

void compare(Block &seen, Block &expected) { check_rows(seen, expected, part); }

}  // namespace

TEST_CASE("cpu: norms of extreme rows") {
    Devices devices;
    for (const DType type : {DType::f32, DType::bf16})
        for (const int64_t width : {int64_t{7}, int64_t{64}, int64_t{300}})
            for (const double epsilon : {1e-5, 1e-12, 1e-300})
                for (const int kind : {0, 1, 2, 3}) {
                    if (left_out(kind + width + (epsilon < 1e-20), type)) continue;
                    const bool rms = (kind & 1) != 0, centered = (kind & 2) != 0;
                    const std::string what = std::string(name_of(type))
                                                 .append(" width ")
                                                 .append(std::to_string(width))
                                                 .append(rms ? " rms" : "") +
                                             " epsilon " + std::to_string(std::log10(epsilon));
                    const int64_t count = row_count * width;
                    const auto forward = [=](Run &r, Device &on, void *x, void *y, void *rstd, void *mean) {
                        on.run(NormForward{type, row_count, width, rms, centered, epsilon, x, r.in(type, width, 2),
                                           rms ? nullptr : r.in(type, width, 3), y, rstd, mean});
                    };
                    check_case(
                        devices, "forward " + what,
                        [=](Run &r) {
                            void *x = r.in(type, count, 1), *y = r.out(type, count, width),
                                 *rstd = r.out(DType::f32, row_count, 1);
                            fill(type, x, width, false);
                            void *mean = rms ? nullptr : r.in(DType::f32, row_count, 1),
                                 *beside = rms ? nullptr : r.out(DType::f32, row_count);
                            forward(r, r.device, x, y, rstd, mean);
                            if (!rms) beside_spread(beside, mean, rstd);
                        },
                        compare);
                    check_case(
                        devices, "backward " + what,
                        [=](Run &r) {
                            void *x = r.in(type, count, 1), *dy = r.in(type, count, 1), *y = r.in(type, count, 1),
                                 *rstd = r.in(DType::f32, row_count, 1);
                            void *mean = rms ? nullptr : r.in(DType::f32, row_count, 1);
                            fill(type, x, width, false), fill(type, dy, width, true);
                            forward(r, r.reference, x, y, rstd, mean);
                            KernelSize size;
                            size.dtype = type, size.rows = row_count, size.n = width;
                            r.device.run(NormBackward{type, row_count, width, rms, centered, epsilon, dy, x,
                                                      r.in(type, width, 2), rstd, mean, nullptr,
                                                      r.out(type, count, width), nullptr, nullptr, false,
                                                      r.scratch(Kernel::norm_backward, size)});
                        },
                        compare);
                    // The sums, of rows whose gradients are ordinary.
                    check_case(
                        devices, "sums " + what,
                        [=](Run &r) {
                            void *x = r.in(type, count, 1), *y = r.in(type, count, 1),
                                 *rstd = r.in(DType::f32, row_count, 1);
                            void *mean = rms ? nullptr : r.in(DType::f32, row_count, 1), *dy = r.in(type, count, 1);
                            fill(type, x, width, false);
                            forward(r, r.reference, x, y, rstd, mean);
                            KernelSize size;
                            size.dtype = type, size.rows = row_count, size.n = width;
                            r.device.run(NormBackward{
                                type, row_count, width, rms, centered, epsilon, dy, x, r.in(type, width, 2), rstd, mean,
                                nullptr, nullptr, r.out(DType::f32, width), rms ? nullptr : r.out(DType::f32, width),
                                false, r.scratch(Kernel::norm_backward, size)});
                        },
                        compare);
                }
}

TEST_CASE("cpu: qk norms of extreme heads") {
    Devices devices;
    for (const DType type : {DType::f32, DType::bf16})
        for (const int64_t d : {int64_t{6}, int64_t{64}, int64_t{530}})
            for (const double epsilon : {1e-5, 1e-300})
                for (const int kind : {0, 1, 2, 3}) {
                    if (left_out(kind + d / 2 + (epsilon < 1e-20), type)) continue;
                    const bool rms = (kind & 1) != 0, interleaved = (kind & 2) != 0;
                    const std::string what =
                        std::string(name_of(type)).append(" d ").append(std::to_string(d)).append(rms ? " rms" : "") +
                        (interleaved ? " interleaved" : "");
                    // Tokens are the rows, with one query head and one key head each, both of the same values.
                    const int64_t count = row_count * d, half = d / 2;
                    const auto arguments = [=](Run &r, void *q, void *k, void *out_q, void *out_k,
                                               void *const *statistics) {
                        void *cosine = r.in(DType::f32, row_count * half, 2),
                             *sine = r.in(DType::f32, row_count * half, 3);
                        for (int64_t i = 0; i < row_count * half; ++i)
                            store(DType::f32, cosine, i, std::cos(double(i))),
                                store(DType::f32, sine, i, std::sin(double(i)));
                        Mask mask;
                        mask.seq = row_count;
                        const auto heads = [&](void *base) { return Heads{base, d, d, d}; };
                        return QkNormRope{type,
                                          {row_count, 1, false},
                                          mask,
                                          1,
                                          1,
                                          d,
                                          d,
                                          interleaved,
                                          cosine,
                                          sine,
                                          true,
                                          rms,
                                          false,
                                          epsilon,
                                          r.in(type, d, 4),
                                          rms ? nullptr : r.in(type, d, 5),
                                          r.in(type, d, 6),
                                          rms ? nullptr : r.in(type, d, 7),
                                          heads(q),
                                          heads(k),
                                          heads(out_q),
                                          heads(out_k),
                                          statistics[0],
                                          statistics[1],
                                          statistics[2],
                                          statistics[3]};
                    };
                    const auto inputs = [=](Run &r, bool gradient) {
                        void *x = r.in(type, count, 1);
                        fill(type, x, d, gradient);
                        return x;
                    };
                    check_case(
                        devices, "forward " + what,
                        [=](Run &r) {
                            void *statistics[4] = {r.out(DType::f32, row_count, 1), r.out(DType::f32, row_count, 1),
                                                   nullptr, nullptr};
                            if (!rms)
                                statistics[2] = r.in(DType::f32, row_count, 1),
                                statistics[3] = r.in(DType::f32, row_count, 1);
                            void *q = inputs(r, false), *k = inputs(r, false);
                            r.device.run(arguments(r, q, k, r.out(type, count, d), r.out(type, count, d), statistics));
                            for (int i = 0; i < 2 && !rms; ++i)
                                beside_spread(r.out(DType::f32, row_count), statistics[2 + i], statistics[i]);
                        },
                        compare);
                    check_case(
                        devices, "backward " + what,
                        [=](Run &r) {
                            void *statistics[4] = {r.in(DType::f32, row_count, 1), r.in(DType::f32, row_count, 1),
                                                   nullptr, nullptr};
                            if (!rms)
                                statistics[2] = r.in(DType::f32, row_count, 1),
                                statistics[3] = r.in(DType::f32, row_count, 1);
                            void *q = inputs(r, false), *k = inputs(r, false), *dq = inputs(r, true),
                                 *dk = r.in(type, count, 8);
                            const QkNormRope a =
                                arguments(r, q, k, r.in(type, count, 1), r.in(type, count, 1), statistics);
                            r.reference.run(a);
                            KernelSize size;
                            size.dtype = type, size.rows = row_count, size.heads = size.groups = 1, size.d = d;
                            const auto heads = [&](void *base) { return Heads{base, d, d, d}; };
                            // The sums, of keys: their gradients are ordinary.
                            r.device.run(QkNormRopeBackward{a, heads(dq), heads(dk), heads(r.out(type, count, d)),
                                                            heads(r.out(type, count, d)), nullptr, nullptr,
                                                            r.out(DType::f32, d), rms ? nullptr : r.out(DType::f32, d),
                                                            false, r.scratch(Kernel::qk_norm_rope_backward, size)});
                        },
                        compare);
                }
}

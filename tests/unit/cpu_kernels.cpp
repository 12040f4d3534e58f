// SPDX-License-Identifier: Apache-2.0
// The CPU device's kernels but attention, against the reference device, and to the bit among themselves.
#include "unit/cpu_case.hpp"

#include "base/status.hpp"
#include "device/cpu/matmul.hpp"
#include "support/tensor.hpp"

using namespace mdlm;
using namespace mdlm_test;

namespace {

constexpr DType types[] = {DType::f32, DType::bf16};
std::string name(const char *kernel, DType type, std::initializer_list<int64_t> numbers) {
    std::string s = std::string(kernel) + " " + name_of(type);
    for (const int64_t n : numbers) s.append(" ").append(std::to_string(n));
    return s;
}
KernelSize linear_size(DType type, int64_t m, int64_t n, int64_t k, bool bias = false, bool accumulate = false) {
    KernelSize s;
    s.dtype = type, s.rows = m, s.n = n, s.k = k, s.bias = bias, s.accumulate = accumulate;
    return s;
}

Case forward_case(DType type, int64_t m, int64_t n, int64_t k, bool bias) {
    return [=](Run &r) {
        r.device.run(LinearForward{type, m, n, k, r.in(type, m * k, 1), r.in(type, n * k, 2),
                                   bias ? r.in(type, n, 3) : nullptr, r.out(type, m * n),
                                   r.scratch(Kernel::linear_forward, linear_size(type, m, n, k, bias))});
    };
}
Case dgrad_case(DType type, int64_t m, int64_t n, int64_t k) {
    return [=](Run &r) {
        r.device.run(LinearDgrad{type, m, n, k, r.in(type, m * n, 1), r.in(type, n * k, 2), r.out(type, m * k),
                                 r.scratch(Kernel::linear_dgrad, linear_size(type, m, n, k))});
    };
}
Case wgrad_case(DType type, int64_t m, int64_t n, int64_t k, bool accumulate) {
    return [=](Run &r) {
        void *dw = accumulate ? r.both(DType::f32, n * k, 4) : r.out(DType::f32, n * k);
        r.device.run(LinearWgrad{type, m, n, k, r.in(type, m * n, 1), r.in(type, m * k, 2), dw, accumulate,
                                 r.scratch(Kernel::linear_wgrad, linear_size(type, m, n, k, false, accumulate))});
    };
}

constexpr int64_t linear_sizes[][3] = {{1, 1, 1},       {1, 24, 33},    {7, 9, 5},     {37, 70, 19},
                                       {130, 136, 129}, {300, 260, 70}, {520, 390, 24}};

}  // namespace

std::vector<mdlm_matmul> matmuls() {
    return cpu_has_onednn() ? std::vector<mdlm_matmul>{MDLM_MATMUL_OWN, MDLM_MATMUL_ONEDNN}
                            : std::vector<mdlm_matmul>{MDLM_MATMUL_OWN};
}

TEST_CASE("cpu: linears") {
    for (const mdlm_matmul matmul : matmuls()) {
        Devices devices(matmul);
        CAPTURE(matmul);
        for (const DType type : types)
            for (const auto &[m, n, k] : linear_sizes) {
                for (const bool bias : {false, true})
                    check_case(devices, name("forward", type, {m, n, k, bias}), forward_case(type, m, n, k, bias));
                check_case(devices, name("dgrad", type, {m, n, k}), dgrad_case(type, m, n, k));
                for (const bool accumulate : {false, true})
                    check_case(devices, name("wgrad", type, {m, n, k, accumulate}),
                               wgrad_case(type, m, n, k, accumulate));
            }
    }
}

// Every element is summed over k in the same order, whatever the tile: what lets tiles depend on the threads.
TEST_CASE("cpu: our own product has the same bits in whole and in parts") {
    for (const DType type : types)
        for (const int layout : {0, 1, 2, 3}) {
            const int64_t m = 70, n = 150, k = 600, rows = 29, columns = 37;
            const bool at = (layout & 1) != 0, bt = (layout & 2) != 0;
            Block a(type, m * k, 0), b(type, k * n, 0), whole(type, m * n, 0), parts(type, m * n, 0);
            Block scratch(DType::f32, cpu::own_workspace(type) / 4, 0);
            for (Block *x : {&a, &b}) fill_uniform(x->type(), x->data(), x->count(), x == &a ? 3 : 4);
            cpu::Matmul product{type, type, m, n, k, at, bt, at ? m : k, bt ? k : n, n, false, false};
            cpu::run_own(product, {a.data(), b.data(), nullptr, whole.data()}, static_cast<float *>(scratch.data()));
            const auto from = [&](Block &x, int64_t index) {
                return static_cast<char *>(x.data()) + index * size_of(type);
            };
            for (int64_t i = 0; i < m; i += rows)
                for (int64_t j = 0; j < n; j += columns) {
                    product.m = std::min(rows, m - i), product.n = std::min(columns, n - j);
                    cpu::run_own(product,
                                 {from(a, at ? i : i * k), from(b, bt ? j * k : j), nullptr, from(parts, i * n + j)},
                                 static_cast<float *>(scratch.data()));
                }
            CAPTURE(layout);
            CHECK(std::memcmp(whole.data(), parts.data(), whole.bytes()) == 0);
        }
}

TEST_CASE("cpu: our own product, on every layout") {
    for (const DType type : types)
        for (const int layout : {0, 1, 2, 3}) {
            const int64_t m = 131, n = 77, k = 140;
            const bool at = (layout & 1) != 0, bt = (layout & 2) != 0;
            Block a(type, m * k, 0), b(type, k * n, 0), bias(type, n, 0), c(DType::f32, m * n, 0),
                expected(DType::f32, m * n, 0);
            Block scratch(DType::f32, cpu::own_workspace(type) / 4, 0);
            for (Block *x : {&a, &b, &bias, &c, &expected}) fill_uniform(x->type(), x->data(), x->count(), 9);
            for (int64_t i = 0; i < m; ++i)
                for (int64_t j = 0; j < n; ++j) {
                    double sum = expected[i * n + j] + bias[j];
                    for (int64_t p = 0; p < k; ++p)
                        sum += a[at ? p * m + i : i * k + p] * b[bt ? j * k + p : p * n + j];
                    store(DType::f32, expected.data(), i * n + j, sum);
                }
            const cpu::Matmul product{type, DType::f32, m, n, k, at, bt, at ? m : k, bt ? k : n, n, true, true};
            cpu::run_own(product, {a.data(), b.data(), bias.data(), c.data()}, static_cast<float *>(scratch.data()));
            CAPTURE(layout);
            check_close(c, expected, 10.0);
        }
}

TEST_CASE("cpu: what is made lazily, prepared, dropped and made again runs with the same bits") {
    std::vector<std::pair<mdlm_matmul, DType>> kinds;
    for (const mdlm_matmul matmul : matmuls())
        for (const DType type : types) kinds.emplace_back(matmul, type);
    for (const auto &kind : kinds) {
        const DType type = kind.second;
        Devices devices(kind.first);
        Device &lazy = *devices.cpus[1], &prepared = *devices.cpus[2];
        const auto same = [&](const Case &body) {
            Run a(lazy, *devices.reference, 0), b(prepared, *devices.reference, 1);
            body(a), body(b);
            CHECK(std::memcmp(a.outputs[0]->data(), b.outputs[0]->data(), a.outputs[0]->bytes()) == 0);
        };
        for (int round = 0; round < 3; ++round) {
            std::vector<std::shared_ptr<void>> held;
            for (const auto &[m, n, k] : linear_sizes) {
                auto shape = prepared.begin_shape();
                if (round < 2) held.push_back(std::move(shape));  // else made for one call at a time
                prepared.prepare(Kernel::linear_forward, linear_size(type, m, n, k, true));
                prepared.prepare(Kernel::linear_dgrad, linear_size(type, m, n, k));
                prepared.prepare(Kernel::linear_wgrad, linear_size(type, m, n, k, false, true));
                prepared.prepare(Kernel::attention_forward, linear_size(type, m, n, k));
                same(forward_case(type, m, n, k, true));
                same(dgrad_case(type, m, n, k));
                same(wgrad_case(type, m, n, k, true));
            }
        }
    }
}

TEST_CASE("cpu: norms and sums over rows") {
    Devices devices;
    constexpr int64_t sizes[][2] = {{1, 1}, {3, 5}, {70, 300}, {130, 24}, {65, 513}};
    for (const DType type : types)
        for (const auto &pair : sizes) {
            const int64_t rows = pair[0], width = pair[1];
            const KernelSize size = linear_size(type, rows, width, 0);
            for (const bool accumulate : {false, true})
                check_case(devices, name("bias_grad", type, {rows, width, accumulate}), [=](Run &r) {
                    void *db = accumulate ? r.both(DType::f32, width, 2) : r.out(DType::f32, width);
                    r.device.run(BiasGrad{type, rows, width, r.in(type, rows * width, 1), db, accumulate,
                                          r.scratch(Kernel::bias_grad, size)});
                });
            for (const int kind : {0, 1, 2, 3}) {
                const bool rms = (kind & 1) != 0, centered = (kind & 2) != 0;
                check_case(devices, name("norm_forward", type, {rows, width, kind}), [=](Run &r) {
                    r.device.run(NormForward{type, rows, width, rms, centered, 1e-5,
                                             r.in(type, rows * width, 1, 2.0, 0.5), r.in(type, width, 2),
                                             rms ? nullptr : r.in(type, width, 3), r.out(type, rows * width),
                                             r.out(DType::f32, rows), rms ? nullptr : r.out(DType::f32, rows)});
                });
                // wanted: 1 dx, 2 parameters, 4 add, 8 accumulate
                for (const int wanted : {1, 2, 7, 15})
                    check_case(devices, name("norm_backward", type, {rows, width, kind, wanted}), [=](Run &r) {
                        const bool parameters = (wanted & 2) != 0, accumulate = (wanted & 8) != 0;
                        const auto gradient = [&](uint64_t seed) {
                            return !parameters  ? nullptr
                                   : accumulate ? r.both(DType::f32, width, seed)
                                                : r.out(DType::f32, width);
                        };
                        void *x = r.in(type, rows * width, 1), *rstd = r.in(DType::f32, rows, 4, 0.5, 1.5);
                        void *mean = rms ? nullptr : r.in(DType::f32, rows, 5, 0.3),
                             *add = (wanted & 4) != 0 ? r.in(type, rows * width, 6) : nullptr;
                        void *dx = (wanted & 1) != 0 ? r.out(type, rows * width) : nullptr, *dw = gradient(7),
                             *db = rms ? nullptr : gradient(8);
                        r.device.run(NormBackward{type, rows, width, rms, centered, 1e-5, r.in(type, rows * width, 9),
                                                  x, r.in(type, width, 2), rstd, mean, add, dx, dw, db, accumulate,
                                                  r.scratch(Kernel::norm_backward, size)});
                    });
            }
        }
}

TEST_CASE("cpu: bias, dropout, residual and activations") {
    Devices devices;
    constexpr int64_t sizes[][2] = {{1, 1}, {3, 5}, {9, 300}, {40, 24}};
    for (const DType type : types)
        for (const auto &pair : sizes) {
            const int64_t seq = pair[0], width = pair[1], rows = 2 * seq, count = rows * width;
            for (const int kind : {0, 1, 2, 3}) {
                const Tokens tokens{seq, 2, (kind & 1) != 0};
                const Dropout dropout = dropout_of((kind & 2) != 0 ? 0.3 : 0.0);
                check_case(devices, name("bias_dropout_add", type, {seq, width, kind}), [=](Run &r) {
                    r.device.run(BiasDropoutAdd{type, tokens, width, dropout, r.in(type, count, 1),
                                                kind == 1 ? nullptr : r.in(type, width, 2), r.in(type, count, 3),
                                                r.out(type, count)});
                });
                check_case(devices, name("dropout_backward", type, {seq, width, kind}), [=](Run &r) {
                    r.device.run(
                        DropoutBackward{type, tokens, width, dropout, r.in(type, count, 1), r.out(type, count)});
                });
            }
            for (mdlm_activation kind = MDLM_ACT_GELU; kind <= MDLM_ACT_GEGLU; ++kind) {
                const int64_t wide_count = kind == MDLM_ACT_SWIGLU || kind == MDLM_ACT_GEGLU ? 2 * count : count;
                check_case(devices, name("activation_forward", type, {seq, width, kind}), [=](Run &r) {
                    r.device.run(
                        ActivationForward{type, kind, rows, width, r.in(type, wide_count, 1, 6.0), r.out(type, count)});
                });
                check_case(devices, name("activation_backward", type, {seq, width, kind}), [=](Run &r) {
                    r.device.run(ActivationBackward{type, kind, rows, width, r.in(type, wide_count, 1, 6.0),
                                                    r.in(type, count, 2), r.out(type, wide_count)});
                });
            }
        }
}

TEST_CASE("cpu: it says what it runs on, and what it supports") {
    for (const mdlm_matmul matmul : matmuls()) {
        char line[256] = "";
        make_cpu_device(make_own_pool(2), matmul)->describe(line, sizeof line);
        CHECK(std::string(line).find("cpu: 2 threads, ") == 0);
        CHECK((std::string(line).find("f32: oneDNN") != std::string::npos) == (matmul == MDLM_MATMUL_ONEDNN));
        CHECK(std::string(line).find('\n') == std::string::npos);
    }
    if (!cpu_has_onednn()) CHECK_THROWS_AS(make_cpu_device(make_own_pool(2), MDLM_MATMUL_ONEDNN), Error);
    const Traits traits = traits_of(MDLM_DEVICE_CPU, 2);
    CHECK(traits.supports(DType::bf16));
    CHECK_FALSE(traits.supports(DType::f64));
    CHECK_FALSE(traits.supports(DType::f16));
}

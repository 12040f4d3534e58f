// SPDX-License-Identifier: Apache-2.0
// The reference device in f32 and bf16: what it writes is what f64 gives for the same numbers, rounded once. And traits
// of devices.
#include <doctest/doctest.h>

#include <functional>

#include "base/cores.hpp"
#include "base/status.hpp"
#include "support/attention_cases.hpp"

using namespace mdlm;
using namespace mdlm_test;

namespace {

// kernel(type, inputs, out) runs in a dtype. Inputs are the same numbers in each. scale and sizes come with the kernel.
using Kernels = std::function<void(DType, std::vector<Tensor> &, Tensor &)>;

void check_one_rounding(
    const std::string &what, const std::vector<int64_t> &counts, int64_t out_count, const Kernels &kernel,
    const std::function<DType(DType)> &out_type = [](DType t) { return t; }) {
    for (const DType type : {DType::f32, DType::bf16}) {
        CAPTURE(what);
        CAPTURE(std::string(name_of(type)));
        std::vector<Tensor> narrow, exact;
        for (size_t n = 0; n < counts.size(); ++n) {
            narrow.push_back(Tensor::random(type, counts[n], 50 + n));
            exact.push_back(narrow.back().as(DType::f64));
        }
        Tensor got(out_type(type), out_count), want(DType::f64, out_count);
        kernel(type, narrow, got);
        kernel(DType::f64, exact, want);
        CHECK(got == want.as(out_type(type)));
        int64_t rounded_ones = 0;
        for (int64_t i = 0; i < out_count; ++i) rounded_ones += got[i] != want[i];
        CHECK(rounded_ones * 4 > out_count);  // otherwise nothing was shown
    }
}

TEST_CASE("reference: linears, norms and pointwise kernels round once") {
    const auto d = make_reference_device();
    const int64_t m = 5, n = 7, k = 6;
    check_one_rounding("linear_forward", {m * k, n * k, n}, m * n, [&](DType t, std::vector<Tensor> &in, Tensor &out) {
        d->run(LinearForward{t, m, n, k, in[0].data(), in[1].data(), in[2].data(), out.data(), nullptr});
    });
    check_one_rounding("linear_dgrad", {m * n, n * k}, m * k, [&](DType t, std::vector<Tensor> &in, Tensor &out) {
        d->run(LinearDgrad{t, m, n, k, in[0].data(), in[1].data(), out.data(), nullptr});
    });
    check_one_rounding(
        "linear_wgrad", {40 * n, 40 * k}, n * k,
        [&](DType t, std::vector<Tensor> &in, Tensor &out) {
            d->run(LinearWgrad{t, 40, n, k, in[0].data(), in[1].data(), out.data(), false, nullptr});
        },
        wide);
    check_one_rounding("norm_forward", {m * k, k, k}, m * k, [&](DType t, std::vector<Tensor> &in, Tensor &out) {
        Tensor rstd(wide(t), m), mean(wide(t), m);
        d->run(NormForward{t, m, k, false, true, 1e-5, in[0].data(), in[1].data(), in[2].data(), out.data(),
                           rstd.data(), mean.data()});
    });
    check_one_rounding(
        "bias_dropout_add", {m * k, k, m * k}, m * k, [&](DType t, std::vector<Tensor> &in, Tensor &out) {
            d->run(BiasDropoutAdd{
                t, {m, 1, false}, k, dropout_of(0.2), in[0].data(), in[1].data(), in[2].data(), out.data()});
        });
    for (mdlm_activation kind = MDLM_ACT_GELU; kind <= MDLM_ACT_GEGLU; ++kind) {
        if (kind == MDLM_ACT_SQUARED_RELU) continue;  // half of its values are 0
        check_one_rounding("activation_forward", {2 * m * k}, m * k,
                           [&](DType t, std::vector<Tensor> &in, Tensor &out) {
                               d->run(ActivationForward{t, kind, m, k, in[0].data(), out.data()});
                           });
        check_one_rounding("activation_backward", {2 * m * k, m * k}, m * k,
                           [&](DType t, std::vector<Tensor> &in, Tensor &out) {
                               Tensor dg(t, 2 * m * k);
                               d->run(ActivationBackward{t, kind, m, k, in[0].data(), in[1].data(), dg.data()});
                               for (int64_t i = 0; i < m * k; ++i) out.set(i, dg[i]);
                           });
    }
}

TEST_CASE("reference: attention kernels round once") {
    const auto d = make_reference_device();
    for (const AttentionCase &test : attention_cases()) {
        if (test.seq < 4) continue;
        const Documents docs(test.documents);
        const Packed packed = test.packed();
        const int64_t rows = test.seq * test.batch, squares = test.batch * test.heads * test.seq * test.seq;
        const int64_t outputs = rows * test.heads * test.d;
        check_one_rounding(test.name, {rows * packed.width()}, outputs,
                           [&](DType t, std::vector<Tensor> &in, Tensor &out) {
                               Tensor row_max(wide(t), rows * test.heads), inverse_sum(wide(t), rows * test.heads);
                               Scratch scratch(*d, Kernel::attention_forward, test.size(t));
                               Attention a = test.shape(t, docs);
                               // A query that sees one key rounds nothing.
                               a.mask.type = MDLM_MASK_NO_MASK, a.mask.left = a.mask.right = -1;
                               d->run(AttentionForward{a, packed.q(in[0]), packed.k(in[0]), packed.v(in[0]),
                                                       alone(out, test.groups, packed.per_group(), test.d),
                                                       row_max.data(), inverse_sum.data(), scratch.data()});
                           });
        if (!test.documents.empty()) continue;
        check_one_rounding(test.name, {squares}, squares, [&](DType t, std::vector<Tensor> &in, Tensor &out) {
            Attention a = test.shape(t, docs);
            a.mask.type = MDLM_MASK_NO_MASK, a.mask.left = a.mask.right = -1;
            d->run(AttnSoftmax{a, in[0].data(), out.data()});
        });
    }
}

TEST_CASE("reference: float64 is not float: sums keep what float would lose") {
    const auto d = make_reference_device();
    Tensor x(DType::f64, 3), w(DType::f64, 3), y(DType::f64, 1);
    x.set(0, 1e12), x.set(1, 1.0), x.set(2, -1e12);
    w.fill(1.0);
    d->run(LinearForward{DType::f64, 1, 1, 3, x.data(), w.data(), nullptr, y.data(), nullptr});
    CHECK(y[0] == 1.0);
}

TEST_CASE("traits: what each device kind supports") {
    const Traits reference = traits_of(MDLM_DEVICE_REFERENCE, 5);
    CHECK(reference.threads == 1);
    CHECK(reference.supports(DType::f64));
    CHECK(reference.supports(DType::f32));
    CHECK(reference.supports(DType::bf16));
    CHECK_FALSE(reference.supports(DType::f16));
    CHECK(traits_of(MDLM_DEVICE_CPU, 3).threads == 3);
    CHECK(traits_of(MDLM_DEVICE_CPU, 0).threads == usable_cores());

    const auto status = [](mdlm_device_kind kind, int32_t threads) -> mdlm_status {
        try {
            traits_of(kind, threads);
        } catch (const Error &e) {
            return e.status();
        }
        return MDLM_OK;
    };
    CHECK(status(MDLM_DEVICE_CUDA, 0) == MDLM_ERROR_UNSUPPORTED);
    CHECK(status(99, 0) == MDLM_ERROR_ARGUMENT);
    CHECK(status(MDLM_DEVICE_CPU, -1) == MDLM_ERROR_ARGUMENT);
    const auto device = make_reference_device();
    Tensor x(DType::f16, 1);
    CHECK_THROWS_AS(device->run(ActivationForward{DType::f16, MDLM_ACT_GELU, 1, 1, x.data(), x.data()}), Error);
}

}  // namespace

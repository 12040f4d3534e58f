// SPDX-License-Identifier: Apache-2.0
// The kernels whose output may lie over an input: the same bits as elsewhere.
#include <doctest/doctest.h>

#include <functional>

#include "support/attention_cases.hpp"

using namespace mdlm;
using namespace mdlm_test;

namespace {

// run(output) writes to output, reading from inputs; over is the input that the output may lie over.
void check_over(const std::string &what, Tensor &over, const std::function<void(void *output)> &run) {
    CAPTURE(what);
    CAPTURE(std::string(name_of(over.type())));
    const Tensor before = over;
    Tensor elsewhere(over.type(), over.count());
    run(elsewhere.data());
    REQUIRE(over == before);
    run(over.data());
    CHECK(over == elsewhere);
    CHECK_FALSE(over == before);
    over = before;
}

void all(Device &device, DType type) {
    const Tokens tokens{5, 2, false};
    const int64_t rows = tokens.rows(), width = 12;
    const Dropout dropout = dropout_of(0.3);
    Tensor x = Tensor::random(type, rows * width, 1), dy = Tensor::random(type, rows * width, 2);
    Tensor add = Tensor::random(type, rows * width, 3);
    Tensor weight = Tensor::random(type, width, 4), bias = Tensor::random(type, width, 5);
    Tensor rstd(wide(type), rows), mean(wide(type), rows), dweight(wide(type), width), dbias(wide(type), width);

    for (const bool rms : {false, true}) {
        void *b = rms ? nullptr : bias.data(), *db = rms ? nullptr : dbias.data(), *m = rms ? nullptr : mean.data();
        check_over("norm_forward: y over x", x, [&](void *y) {
            device.run(NormForward{type, rows, width, rms, false, 1e-5, x.data(), weight.data(), b, y, rstd.data(), m});
        });
        KernelSize size;
        size.dtype = type;
        size.rows = rows;
        size.n = width;
        Scratch scratch(device, Kernel::norm_backward, size);
        const auto backward = [&](void *dx) {
            device.run(NormBackward{type, rows, width, rms, false, 1e-5, dy.data(), x.data(), weight.data(),
                                    rstd.data(), m, add.data(), dx, dweight.data(), db, false, scratch.data()});
        };
        check_over("norm_backward: dx over dy", dy, backward);
        const Tensor after_dy = dweight;
        check_over("norm_backward: dx over add", add, backward);
        CHECK(dweight == after_dy);
    }

    const auto bias_dropout_add = [&](void *y) {
        device.run(BiasDropoutAdd{type, tokens, width, dropout, x.data(), bias.data(), add.data(), y});
    };
    check_over("bias_dropout_add: y over x", x, bias_dropout_add);
    check_over("bias_dropout_add: y over residual", add, bias_dropout_add);
    check_over("dropout_backward: dx over dy", dy, [&](void *dx) {
        device.run(DropoutBackward{type, tokens, width, dropout, dy.data(), dx});
    });
    for (mdlm_activation kind = MDLM_ACT_GELU; kind <= MDLM_ACT_GEGLU; ++kind) {
        const int64_t wide_rows = kind == MDLM_ACT_SWIGLU || kind == MDLM_ACT_GEGLU ? rows / 2 : rows;
        check_over("activation_backward: dg over g", x, [&](void *dg) {
            device.run(ActivationBackward{type, kind, wide_rows, width, x.data(), dy.data(), dg});
        });
    }

    for (const AttentionCase &test : attention_cases()) {
        if (test.seq == 1) continue;  // p = 1 and ds = 0: nothing to see
        const Documents docs(test.documents);
        const Attention a = test.shape(type, docs);
        const int64_t count = test.batch * test.heads * test.seq * test.seq;
        Tensor p = Tensor::random(type, count, 6), dp = Tensor::random(type, count, 7);
        check_over("attn_softmax: probabilities over scores", p, [&](void *to) {
            device.run(AttnSoftmax{a, p.data(), to});
        });
        device.run(AttnSoftmax{a, p.data(), p.data()});
        check_over("attn_softmax_backward: dscores over dprobabilities", dp, [&](void *to) {
            device.run(AttnSoftmaxBackward{a, p.data(), dp.data(), to});
        });
    }
}

TEST_CASE("in place: the reference device") {
    const auto device = make_reference_device();
    for (const DType type : {DType::f32, DType::bf16, DType::f64}) all(*device, type);
}

TEST_CASE("in place: the cpu device") {
    const auto device = make_cpu_device(make_own_pool(2));
    for (const DType type : {DType::f32, DType::bf16}) all(*device, type);
}

}  // namespace

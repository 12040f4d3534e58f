// SPDX-License-Identifier: Apache-2.0
// Every backward kernel of norms, linears and pointwise ops on the reference device, against finite differences.
#include <doctest/doctest.h>

#include <cmath>

#include "support/gradient.hpp"

using namespace mdlm;
using namespace mdlm_test;

namespace {

constexpr DType f64 = DType::f64;

void norm_case(Device &device, bool rms, bool zero_centered, bool with_add) {
    const int64_t rows = 5, width = 7;
    Tensor x = Tensor::random(f64, rows * width, 1), weight = Tensor::random(f64, width, 2),
           bias = Tensor::random(f64, width, 3);
    Tensor add = Tensor::random(f64, rows * width, 4), dy = Tensor::random(f64, rows * width, 5);
    Tensor y(f64, rows * width), rstd(f64, rows), mean(f64, rows), dx(f64, rows * width), dweight(f64, width),
        dbias(f64, width);
    const double epsilon = 1e-2;
    const auto loss = [&] {
        device.run(NormForward{f64, rows, width, rms, zero_centered, epsilon, x.data(), weight.data(),
                               rms ? nullptr : bias.data(), y.data(), rstd.data(), rms ? nullptr : mean.data()});
        // What arrives from elsewhere is the gradient of <add, x>.
        return product(y, dy) + (with_add ? product(x, add) : 0.0);
    };
    KernelSize size;
    size.dtype = f64;
    size.rows = rows;
    size.n = width;
    Scratch scratch(device, Kernel::norm_backward, size);
    const auto backward = [&](bool accumulate) {
        device.run(NormBackward{f64, rows, width, rms, zero_centered, epsilon, dy.data(), x.data(), weight.data(),
                                rstd.data(), rms ? nullptr : mean.data(), with_add ? add.data() : nullptr, dx.data(),
                                dweight.data(), rms ? nullptr : dbias.data(), accumulate, scratch.data()});
    };
    std::vector<Wrt> wrt = {{"x", &x, &dx, false}, {"weight", &weight, &dweight, true}};
    if (!rms) wrt.push_back({"bias", &bias, &dbias, true});
    const std::string what = std::string(rms ? "rms" : "layer") + "norm" + (zero_centered ? " zero centred" : "");
    check_backward(what + (with_add ? " add" : ""), wrt, loss, backward);

    // A part alone gives the same.
    Tensor only(f64, width);
    device.run(NormBackward{f64, rows, width, rms, zero_centered, epsilon, dy.data(), x.data(), weight.data(),
                            rstd.data(), rms ? nullptr : mean.data(), nullptr, nullptr, only.data(), nullptr, false,
                            scratch.data()});
    CHECK(only == dweight);
}

TEST_CASE("gradients: norms") {
    const auto device = make_reference_device();
    for (const bool rms : {false, true}) {
        for (const bool zero_centered : {false, true}) {
            for (const bool with_add : {false, true}) norm_case(*device, rms, zero_centered, with_add);
        }
    }
}

TEST_CASE("gradients: linears") {
    const auto device = make_reference_device();
    for (const bool with_bias : {false, true}) {
        const int64_t m = 5, n = 4, k = 6;
        Tensor x = Tensor::random(f64, m * k, 1), w = Tensor::random(f64, n * k, 2), bias = Tensor::random(f64, n, 3);
        Tensor dy = Tensor::random(f64, m * n, 4), y(f64, m * n), dx(f64, m * k), dw(f64, n * k), db(f64, n);
        KernelSize size;
        size.dtype = f64;
        size.rows = m;
        size.n = n;
        size.k = k;
        size.bias = with_bias;
        const auto loss = [&] {
            Scratch scratch(*device, Kernel::linear_forward, size);
            device->run(LinearForward{f64, m, n, k, x.data(), w.data(), with_bias ? bias.data() : nullptr, y.data(),
                                      scratch.data()});
            return product(y, dy);
        };
        const auto backward = [&](bool accumulate) {
            Scratch dgrad(*device, Kernel::linear_dgrad, size), wgrad(*device, Kernel::linear_wgrad, size);
            Scratch bias_grad(*device, Kernel::bias_grad, size);
            device->run(LinearDgrad{f64, m, n, k, dy.data(), w.data(), dx.data(), dgrad.data()});
            device->run(LinearWgrad{f64, m, n, k, dy.data(), x.data(), dw.data(), accumulate, wgrad.data()});
            if (with_bias) device->run(BiasGrad{f64, m, n, dy.data(), db.data(), accumulate, bias_grad.data()});
        };
        std::vector<Wrt> wrt = {{"x", &x, &dx, false}, {"weight", &w, &dw, true}};
        if (with_bias) wrt.push_back({"bias", &bias, &db, true});
        check_backward(with_bias ? "linear with bias" : "linear", wrt, loss, backward);
    }
}

TEST_CASE("gradients: bias, dropout and add") {
    const auto device = make_reference_device();
    for (const double probability : {0.0, 0.4}) {
        for (const bool batch_first : {false, true}) {
            for (const bool with_bias : {false, true}) {
                const Tokens tokens{3, 2, batch_first};
                const int64_t width = 5, count = tokens.rows() * width;
                const Dropout dropout = dropout_of(probability);
                Tensor x = Tensor::random(f64, count, 1), bias = Tensor::random(f64, width, 2),
                       residual = Tensor::random(f64, count, 3);
                Tensor dy = Tensor::random(f64, count, 4), y(f64, count), dx(f64, count), dbias(f64, width),
                       dresidual(f64, count);
                const auto loss = [&] {
                    device->run(BiasDropoutAdd{f64, tokens, width, dropout, x.data(), with_bias ? bias.data() : nullptr,
                                               residual.data(), y.data()});
                    return product(y, dy);
                };
                const auto backward = [&](bool accumulate) {
                    device->run(DropoutBackward{f64, tokens, width, dropout, dy.data(), dx.data()});
                    device->run(BiasGrad{f64, tokens.rows(), width, dx.data(), dbias.data(), accumulate, nullptr});
                    dresidual = dy;
                };
                std::vector<Wrt> wrt = {{"x", &x, &dx, false}, {"residual", &residual, &dresidual, false}};
                if (with_bias) wrt.push_back({"bias", &bias, &dbias, true});
                check_backward("bias dropout add", wrt, loss, backward);
                int64_t dropped = 0;
                for (int64_t i = 0; i < count; ++i) dropped += dx[i] == 0.0;
                CHECK((dropped > 0) == (probability > 0.0));
            }
        }
    }
}

TEST_CASE("dropout: the same elements for both layouts") {
    const auto device = make_reference_device();
    const int64_t seq = 4, batch = 3, width = 5;
    Tensor ones(f64, seq * batch * width), s_major(f64, ones.count()), b_major(f64, ones.count());
    ones.fill(1.0);
    device->run(DropoutBackward{f64, {seq, batch, false}, width, dropout_of(0.5), ones.data(), s_major.data()});
    device->run(DropoutBackward{f64, {seq, batch, true}, width, dropout_of(0.5), ones.data(), b_major.data()});
    int64_t different = 0;
    for (int64_t s = 0; s < seq; ++s) {
        for (int64_t b = 0; b < batch; ++b) {
            for (int64_t c = 0; c < width; ++c)
                different += s_major[(s * batch + b) * width + c] != b_major[(b * seq + s) * width + c];
        }
    }
    CHECK(different == 0);
    CHECK_FALSE(s_major == b_major);
}

TEST_CASE("gradients: activations") {
    const auto device = make_reference_device();
    for (mdlm_activation kind = MDLM_ACT_GELU; kind <= MDLM_ACT_GEGLU; ++kind) {
        const int64_t rows = 6, width = 7, parts = kind == MDLM_ACT_SWIGLU || kind == MDLM_ACT_GEGLU ? 2 : 1;
        Tensor g = Tensor::random(f64, rows * parts * width, 1), dm = Tensor::random(f64, rows * width, 2);
        for (int64_t i = 0; i < g.count(); ++i) {
            g.set(i, 3.0 * g[i]);
            if (std::fabs(g[i]) < 0.01) g.set(i, 0.01);  // squared relu has no second derivative at 0
        }
        Tensor m(f64, rows * width), dg(f64, g.count());
        const auto loss = [&] {
            device->run(ActivationForward{f64, kind, rows, width, g.data(), m.data()});
            return product(m, dm);
        };
        const auto backward = [&](bool) {
            device->run(ActivationBackward{f64, kind, rows, width, g.data(), dm.data(), dg.data()});
        };
        check_backward("activation " + std::to_string(kind), {{"g", &g, &dg, false}}, loss, backward);
    }
}

TEST_CASE("activations: known values") {
    const auto device = make_reference_device();
    // x, up, then gelu, gelu_tanh, squared_relu, swiglu, geglu at x (and up), from 30-digit arithmetic.
    const double x = 0.75, up = -2.0;
    const double want[] = {0.58002948571734885, 0.57996055516562030, 0.5625, -1.0187680487630895, -1.1599211103312406};
    for (mdlm_activation kind = MDLM_ACT_GELU; kind <= MDLM_ACT_GEGLU; ++kind) {
        Tensor g(f64, 2), m(f64, 1);
        g.set(0, x);
        g.set(1, up);
        device->run(ActivationForward{f64, kind, 1, 1, g.data(), m.data()});
        CHECK(m[0] == doctest::Approx(want[kind]).epsilon(1e-15));
    }
}

}  // namespace

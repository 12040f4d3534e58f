// SPDX-License-Identifier: Apache-2.0
// y = x W^T + b; dx = dy W; dW = dy^T x; db = column sums of dy.
#include "op/linear.hpp"

#include "base/sizes.hpp"
#include "op/collective.hpp"

namespace mdlm {
namespace {

class LinearOpBase : public Op {
public:
    explicit LinearOpBase(const LinearSpec &spec) : spec_(spec) {}
    Cost cost(Extent e) const override {
        const Checked m(e.tokens), values = m * spec_.n + m * spec_.k + Checked(spec_.n) * spec_.k;
        const int64_t flops = 2 * m * spec_.n * spec_.k;
        return {flops, values * size_of(spec_.dtype), Work::linear, flops, spec_.n, spec_.k};
    }

protected:
    KernelSize size(Extent e) const {
        KernelSize s;
        s.dtype = spec_.dtype, s.rows = e.tokens, s.n = spec_.n, s.k = spec_.k;
        return s;
    }
    LinearSpec spec_;
};

class LinearDgradOp final : public LinearOpBase {
public:
    using LinearOpBase::LinearOpBase;
    const char *name() const override { return "linear_dgrad"; }
    void run(const Call &c) const override {
        c.device.run(LinearDgrad{spec_.dtype, c.state.tokens.rows(), spec_.n, spec_.k, c.in[0], c.param(spec_.weight),
                                 c.out[0], c.workspace});
    }
    void kernels(Extent e, const UseKernel &use) const override { use(Kernel::linear_dgrad, size(e)); }
};

class LinearWgradOp final : public LinearOpBase {
public:
    using LinearOpBase::LinearOpBase;
    const char *name() const override { return "linear_wgrad"; }
    // The gradient is read and written in its own dtype.
    Cost cost(Extent e) const override {
        Cost c = LinearOpBase::cost(e);
        c.bytes =
            Checked(c.bytes) + Checked(spec_.n) * spec_.k * (2 * size_of(wide(spec_.dtype)) - size_of(spec_.dtype));
        return c;
    }
    void run(const Call &c) const override {
        c.device.run(LinearWgrad{spec_.dtype, c.state.tokens.rows(), spec_.n, spec_.k, c.in[0], c.in[1], sink.at(c),
                                 sink.accumulate(c), c.workspace});
    }
    void kernels(Extent e, const UseKernel &use) const override { both_ways(use, Kernel::linear_wgrad, size(e)); }
    GradSink sink;
};

class BiasGradOp final : public Op {
public:
    BiasGradOp(DType dtype, int64_t width, int64_t split) : dtype_(dtype), width_(width), split_(split) {}
    const char *name() const override { return "bias_grad"; }
    void run(const Call &c) const override {
        c.device.run(
            BiasGrad{dtype_, rows(c.state.extent()), width_, c.in[0], sink.at(c), sink.accumulate(c), c.workspace});
    }
    Cost cost(Extent e) const override {
        return {Checked(rows(e)) * width_, Checked(rows(e)) * width_ * size_of(dtype_)};
    }
    void kernels(Extent e, const UseKernel &use) const override {
        KernelSize s;
        s.dtype = dtype_, s.rows = rows(e), s.n = width_;
        both_ways(use, Kernel::bias_grad, s);
    }
    GradSink sink;

private:
    int64_t rows(Extent e) const { return ceil_div(e.tokens, split_); }
    DType dtype_;
    int64_t width_, split_;
};

class LinearOp final : public LinearOpBase {
public:
    using LinearOpBase::LinearOpBase;
    const char *name() const override { return "linear"; }
    void run(const Call &c) const override {
        c.device.run(LinearForward{spec_.dtype, c.state.tokens.rows(), spec_.n, spec_.k, c.in[0], c.param(spec_.weight),
                                   c.param(spec_.bias), c.out[0], c.workspace});
    }
    void kernels(Extent e, const UseKernel &use) const override {
        KernelSize s = size(e);
        s.bias = spec_.bias != no_param;
        use(Kernel::linear_forward, s);
    }
    // Parameter gradients come first: the input's last reader is then behind when its gradient is born.
    void differentiate(Derivative &d) const override {
        const BufferId dy = d.gradient(out[0]);
        if (dy == no_buffer) return;
        if (d.trains(spec_.weight)) {
            auto op = std::make_unique<LinearWgradOp>(spec_);
            op->in = {dy, in[0]};
            op->sink = d.sink(*op, spec_.weight);
            d.emit(std::move(op));
        }
        if (d.trains(spec_.bias)) emit_bias_gradient(d, spec_.dtype, spec_.n, 1, spec_.bias, dy);
        if (!d.wants(in[0])) return;
        auto op = std::make_unique<LinearDgradOp>(spec_);
        op->in = {dy};
        if (!spec_.reduce_input_gradient) {
            op->out = {d.contribute(in[0]).to};
            d.emit(std::move(op));
            return;
        }
        const BufferId part = d.new_like(in[0], "partial");
        op->out = {part};
        d.emit(std::move(op));
        d.emit(make_collective(Collective::all_reduce, d.buffer(in[0]), part, d.contribute(in[0]).to));
    }
};

}  // namespace

std::unique_ptr<Op> make_linear(const LinearSpec &spec, BufferId x, BufferId y) {
    auto op = std::make_unique<LinearOp>(spec);
    op->in = {x};
    op->out = {y};
    return op;
}

void emit_bias_gradient(Derivative &d, DType dtype, int64_t width, int64_t split, ParamId bias, BufferId dy) {
    auto op = std::make_unique<BiasGradOp>(dtype, width, split);
    op->in = {dy};
    op->sink = d.sink(*op, bias);
    d.emit(std::move(op));
}

}  // namespace mdlm

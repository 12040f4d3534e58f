// SPDX-License-Identifier: Apache-2.0
#include "op/bias_dropout_add.hpp"

#include "base/sizes.hpp"
#include "op/linear.hpp"

namespace mdlm {
namespace {

class BiasDropoutAddOpBase : public Op {
public:
    explicit BiasDropoutAddOpBase(const BiasDropoutAddSpec &spec) : spec_(spec) {}

protected:
    Checked elements(Extent e) const { return Checked(ceil_div(e.tokens, spec_.split)) * spec_.width; }
    KernelSize size(Extent e, bool bias) const {
        KernelSize s;
        s.dtype = spec_.dtype, s.rows = ceil_div(e.tokens, spec_.split), s.n = spec_.width, s.bias = bias;
        return s;
    }
    BiasDropoutAddSpec spec_;
};

class DropoutBackwardOp final : public BiasDropoutAddOpBase {
public:
    using BiasDropoutAddOpBase::BiasDropoutAddOpBase;
    const char *name() const override { return "dropout_backward"; }
    void run(const Call &c) const override {
        c.device.run(DropoutBackward{spec_.dtype, c.state.part(spec_.split), spec_.width,
                                     c.state.dropout(spec_.dropout, spec_.site), c.in[0], c.out[0]});
    }
    void kernels(Extent e, const UseKernel &use) const override {
        with_dropout(use, Kernel::dropout_backward, size(e, false), spec_.dropout);
    }
    Cost cost(Extent e) const override { return {elements(e), 2 * elements(e) * size_of(spec_.dtype)}; }
    std::vector<int32_t> in_place() const override { return {0}; }
};

class BiasDropoutAddOp final : public BiasDropoutAddOpBase {
public:
    using BiasDropoutAddOpBase::BiasDropoutAddOpBase;
    const char *name() const override { return "bias_dropout_add"; }
    void run(const Call &c) const override {
        c.device.run(BiasDropoutAdd{spec_.dtype, c.state.part(spec_.split), spec_.width,
                                    c.state.dropout(spec_.dropout, spec_.site), c.in[0], c.param(spec_.bias), c.in[1],
                                    c.out[0]});
    }
    void kernels(Extent e, const UseKernel &use) const override {
        with_dropout(use, Kernel::bias_dropout_add, size(e, spec_.bias != no_param), spec_.dropout);
    }
    Cost cost(Extent e) const override { return {3 * elements(e), 3 * elements(e) * size_of(spec_.dtype)}; }
    std::vector<int32_t> in_place() const override { return {0, 1}; }
    void differentiate(Derivative &d) const override {
        const BufferId dy = d.gradient(out[0]);
        if (dy == no_buffer) return;
        const bool dx = d.wants(in[0]), dbias = d.trains(spec_.bias);
        if (dx || dbias) {
            BufferId of_x = dy;  // without dropout the gradient of x is that of y
            if (spec_.dropout != 0.0) {
                auto op = std::make_unique<DropoutBackwardOp>(spec_);
                op->in = {dy};
                of_x = dx ? d.contribute(in[0]).to : d.new_like(in[0], "gradient");
                op->out = {of_x};
                d.emit(std::move(op));
            } else if (dx) {
                d.contribute_as(in[0], dy);
            }
            if (dbias) emit_bias_gradient(d, spec_.dtype, spec_.width, spec_.split, spec_.bias, of_x);
        }
        if (d.wants(in[1])) d.contribute_as(in[1], dy);  // the other readers of the residual add theirs
    }
};

}  // namespace

std::unique_ptr<Op> make_bias_dropout_add(const BiasDropoutAddSpec &spec, BufferId x, BufferId residual, BufferId y) {
    auto op = std::make_unique<BiasDropoutAddOp>(spec);
    op->in = {x, residual};
    op->out = {y};
    return op;
}

}  // namespace mdlm

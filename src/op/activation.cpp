// SPDX-License-Identifier: Apache-2.0
// GELU (Hendrycks, Gimpel, arXiv 1606.08415), squared ReLU (So et al., arXiv 2109.08668), gated units (Shazeer, arXiv
// 2002.05202).
#include "op/activation.hpp"

#include "base/sizes.hpp"

namespace mdlm {
namespace {

class ActivationOpBase : public Op {
public:
    explicit ActivationOpBase(const ActivationSpec &spec) : spec_(spec) {}

protected:
    Checked elements(Extent e) const { return Checked(e.tokens) * spec_.width; }
    KernelSize size(Extent e) const {
        KernelSize s;
        s.dtype = spec_.dtype, s.rows = e.tokens, s.n = spec_.width, s.activation = spec_.kind;
        return s;
    }
    int64_t inputs() const { return spec_.gated() ? 2 : 1; }
    ActivationSpec spec_;
};

class ActivationBackwardOp final : public ActivationOpBase {
public:
    // in: dm, g; out: dg
    using ActivationOpBase::ActivationOpBase;
    const char *name() const override { return "activation_backward"; }
    void run(const Call &c) const override {
        c.device.run(ActivationBackward{spec_.dtype, spec_.kind, c.state.tokens.rows(), spec_.width, c.in[1], c.in[0],
                                        c.out[0]});
    }
    void kernels(Extent e, const UseKernel &use) const override { use(Kernel::activation_backward, size(e)); }
    Cost cost(Extent e) const override {
        return {12 * elements(e), (2 * inputs() + 1) * elements(e) * size_of(spec_.dtype)};
    }
    std::vector<int32_t> in_place() const override { return {1}; }
};

class ActivationOp final : public ActivationOpBase {
public:
    using ActivationOpBase::ActivationOpBase;
    const char *name() const override { return "activation"; }
    void run(const Call &c) const override {
        c.device.run(ActivationForward{spec_.dtype, spec_.kind, c.state.tokens.rows(), spec_.width, c.in[0], c.out[0]});
    }
    void kernels(Extent e, const UseKernel &use) const override { use(Kernel::activation_forward, size(e)); }
    Cost cost(Extent e) const override {
        return {8 * elements(e), (inputs() + 1) * elements(e) * size_of(spec_.dtype)};
    }
    void differentiate(Derivative &d) const override {
        const BufferId dy = d.gradient(out[0]);
        if (dy == no_buffer || !d.wants(in[0])) return;
        auto op = std::make_unique<ActivationBackwardOp>(spec_);
        op->in = {dy, in[0]};
        op->out = {d.contribute(in[0]).to};
        d.emit(std::move(op));
    }
};

}  // namespace

std::unique_ptr<Op> make_activation(const ActivationSpec &spec, BufferId g, BufferId m) {
    auto op = std::make_unique<ActivationOp>(spec);
    op->in = {g};
    op->out = {m};
    return op;
}

}  // namespace mdlm

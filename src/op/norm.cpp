// SPDX-License-Identifier: Apache-2.0
// LayerNorm: y = (x - mean) rstd w + b (Ba et al., arXiv 1607.06450, eq. 4). RMSNorm: y = x rstd w (Zhang, Sennrich,
// arXiv 1910.07467, eq. 4).
#include "op/norm.hpp"

#include "base/sizes.hpp"

namespace mdlm {
namespace {

class NormOpBase : public Op {
public:
    explicit NormOpBase(const NormSpec &spec) : spec_(spec) {}

protected:
    int64_t rows(Extent e) const { return ceil_div(e.tokens, spec_.split); }
    KernelSize size(Extent e) const {
        KernelSize s;
        s.dtype = spec_.dtype, s.rows = rows(e), s.n = spec_.width, s.bias = spec_.bias != no_param;
        return s;
    }
    // Statistics of the rows of this batch stand behind each other, so the mean's place depends on the batch.
    void *mean(void *stats, Extent e) const {
        return spec_.rms ? nullptr : static_cast<char *>(stats) + rows(e) * size_of(wide(spec_.dtype));
    }
    Checked stats_bytes(Extent e) const { return (spec_.rms ? 1 : 2) * Checked(rows(e)) * size_of(wide(spec_.dtype)); }
    Checked elements(Extent e) const { return Checked(rows(e)) * spec_.width; }
    Checked passes_bytes(Extent e, int64_t tensors) const { return tensors * elements(e) * size_of(spec_.dtype); }
    NormSpec spec_;
};

class NormBackwardOp final : public NormOpBase {
public:
    // in: dy, x, stats [, add]; out: [dx]
    NormBackwardOp(const NormSpec &spec, bool add, bool dx) : NormOpBase(spec), add_(add), dx_(dx) {}
    const char *name() const override { return "norm_backward"; }
    void run(const Call &c) const override {
        const Extent e = c.state.extent();
        NormBackward a{};
        a.dtype = spec_.dtype;
        a.rows = rows(e), a.width = spec_.width;
        a.rms = spec_.rms, a.zero_centered = spec_.zero_centered, a.epsilon = spec_.epsilon;
        a.dy = c.in[0], a.x = c.in[1], a.weight = c.param(spec_.weight);
        a.rstd = c.in[2], a.mean = mean(c.in[2], e);
        a.add = add_ ? c.in[3] : nullptr;
        a.dx = dx_ ? c.out[0] : nullptr;
        a.dweight = weight.at(c), a.dbias = bias.at(c);
        a.accumulate = accumulate(c, {&weight, &bias});
        a.workspace = c.workspace;
        c.device.run(a);
    }
    Cost cost(Extent e) const override { return {12 * elements(e), passes_bytes(e, 2 + dx_ + add_) + stats_bytes(e)}; }
    std::vector<int32_t> in_place() const override {
        return add_ ? std::vector<int32_t>{0, 3} : std::vector<int32_t>{0};
    }
    void kernels(Extent e, const UseKernel &use) const override {
        KernelSize s = size(e);
        s.dx = dx_;
        both_ways(use, Kernel::norm_backward, s);
    }
    GradSink weight, bias;  // of one kind: both straight, or both partial

private:
    bool add_, dx_;
};

class NormOp final : public NormOpBase {
public:
    using NormOpBase::NormOpBase;
    const char *name() const override { return "norm"; }
    void run(const Call &c) const override {
        const Extent e = c.state.extent();
        NormForward a{};
        a.dtype = spec_.dtype;
        a.rows = rows(e), a.width = spec_.width;
        a.rms = spec_.rms, a.zero_centered = spec_.zero_centered, a.epsilon = spec_.epsilon;
        a.x = c.in[0], a.weight = c.param(spec_.weight), a.bias = c.param(spec_.bias);
        a.y = c.out[0], a.rstd = c.out[1], a.mean = mean(c.out[1], e);
        c.device.run(a);
    }
    void kernels(Extent e, const UseKernel &use) const override { use(Kernel::norm_forward, size(e)); }
    Cost cost(Extent e) const override { return {5 * elements(e), passes_bytes(e, 2) + stats_bytes(e)}; }
    std::vector<int32_t> in_place() const override { return {0}; }
    void differentiate(Derivative &d) const override {
        const BufferId dy = d.gradient(out[0]);
        const bool dx = d.wants(in[0]), dweight = d.trains(spec_.weight), dbias = d.trains(spec_.bias);
        if (dy == no_buffer || !(dx || dweight || dbias)) return;
        const Contribution to = dx ? d.contribute(in[0], Adds::yes) : Contribution{};
        auto op = std::make_unique<NormBackwardOp>(spec_, to.add != no_buffer, dx);
        op->in = {dy, in[0], out[1]};
        if (to.add != no_buffer) op->in.push_back(to.add);
        if (dx) op->out = {to.to};
        if (dweight) op->weight = d.sink(*op, spec_.weight);
        if (dbias) op->bias = d.sink(*op, spec_.bias);
        d.emit(std::move(op));
    }
};

}  // namespace

std::unique_ptr<Op> make_norm(const NormSpec &spec, BufferId x, BufferId y, BufferId stats) {
    auto op = std::make_unique<NormOp>(spec);
    op->in = {x};
    op->out = {y, stats};
    return op;
}

}  // namespace mdlm

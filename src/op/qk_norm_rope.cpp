// SPDX-License-Identifier: Apache-2.0
// Norm of every query and key head over its channels (Henry et al., arXiv 2010.04245, as used by diffusion models),
// then the rotary embedding (Su et al., arXiv 2104.09864, eq. 34). One op with one rounding: the normed, unrotated q
// and k are no tensors of the program.
#include "op/qk_norm_rope.hpp"

#include "base/sizes.hpp"

namespace mdlm {
namespace {

class QkNormRopeOpBase : public Op {
public:
    explicit QkNormRopeOpBase(const QkNormRopeSpec &spec) : spec_(spec) {}

protected:
    QkNormRope arguments(const Call &c, void *qkv, void *stats) const {
        const QkNormRopeSpec &s = spec_;
        QkNormRope a{};
        a.dtype = s.dtype;
        a.tokens = c.state.tokens, a.mask = c.state.mask;
        a.heads = s.heads, a.groups = s.groups, a.d = s.d, a.rotary_dim = s.rotary_dim, a.interleaved = s.interleaved;
        a.cos = c.state.cos, a.sin = c.state.sin;
        a.norm = s.norm, a.rms = s.rms, a.zero_centered = s.zero_centered, a.epsilon = s.epsilon;
        a.q_weight = c.param(s.q_weight), a.q_bias = c.param(s.q_bias), a.k_weight = c.param(s.k_weight),
        a.k_bias = c.param(s.k_bias);
        if (qkv != nullptr) a.q = s.q.at(qkv, s.dtype), a.k = s.k.at(qkv, s.dtype);
        if (s.norm) {  // rstd of all query rows, of all key rows, then the means
            const int64_t unit = c.state.tokens.rows() * size_of(wide(s.dtype));
            char *at = static_cast<char *>(stats);
            a.q_rstd = at, a.k_rstd = at + unit * s.heads;
            if (!s.rms) a.q_mean = at + unit * (s.heads + s.groups), a.k_mean = at + unit * (2 * s.heads + s.groups);
        }
        return a;
    }
    KernelSize size(Extent e) const {
        KernelSize s;
        s.dtype = spec_.dtype, s.rows = e.tokens, s.heads = spec_.heads, s.groups = spec_.groups, s.d = spec_.d;
        s.k = spec_.rotary_dim;
        return s;
    }
    Checked stats_bytes(Extent e) const {
        return Checked(spec_.norm ? e.tokens : 0) * spec_.stats_per_token() * size_of(wide(spec_.dtype));
    }
    Checked elements(Extent e) const { return Checked(e.tokens) * (spec_.heads + spec_.groups) * spec_.d; }
    QkNormRopeSpec spec_;
};

class QkNormRopeBackwardOp final : public QkNormRopeOpBase {
public:
    // in: gradient of rotated [, qkv, stats]; out: [gradient of qkv, its q and k parts]
    using QkNormRopeOpBase::QkNormRopeOpBase;
    const char *name() const override { return "qk_norm_rope_backward"; }
    void run(const Call &c) const override {
        QkNormRopeBackward a{};
        a.forward = spec_.norm ? arguments(c, c.in[1], c.in[2]) : arguments(c, nullptr, nullptr);
        a.dq_out = spec_.q_out.at(c.in[0], spec_.dtype), a.dk_out = spec_.k_out.at(c.in[0], spec_.dtype);
        if (dx) a.dq = spec_.q.at(c.out[0], spec_.dtype), a.dk = spec_.k.at(c.out[0], spec_.dtype);
        a.dq_weight = q_weight.at(c), a.dq_bias = q_bias.at(c), a.dk_weight = k_weight.at(c), a.dk_bias = k_bias.at(c);
        a.accumulate = accumulate(c, {&q_weight, &q_bias, &k_weight, &k_bias});
        a.workspace = c.workspace;
        c.device.run(a);
    }
    Cost cost(Extent e) const override {
        return {(spec_.norm ? 18 : 6) * elements(e),
                (spec_.norm ? 3 : 2) * elements(e) * size_of(spec_.dtype) + stats_bytes(e)};
    }
    void kernels(Extent e, const UseKernel &use) const override {
        both_ways(use, Kernel::qk_norm_rope_backward, size(e));
    }
    bool dx = false;
    GradSink q_weight, q_bias, k_weight, k_bias;  // of one kind: all straight, or all partial
};

class QkNormRopeOp final : public QkNormRopeOpBase {
public:
    using QkNormRopeOpBase::QkNormRopeOpBase;
    const char *name() const override { return "qk_norm_rope"; }
    void run(const Call &c) const override {
        QkNormRope a = arguments(c, c.in[0], spec_.norm ? c.out[1] : nullptr);
        a.q_out = spec_.q_out.at(c.out[0], spec_.dtype), a.k_out = spec_.k_out.at(c.out[0], spec_.dtype);
        c.device.run(a);
    }
    void kernels(Extent e, const UseKernel &use) const override { use(Kernel::qk_norm_rope, size(e)); }
    Cost cost(Extent e) const override {
        return {(spec_.norm ? 11 : 6) * elements(e), 2 * elements(e) * size_of(spec_.dtype) + stats_bytes(e)};
    }
    void differentiate(Derivative &d) const override {
        const BufferId dy = d.gradient(out[0]);
        const bool trained =
            d.trains(spec_.q_weight) || d.trains(spec_.q_bias) || d.trains(spec_.k_weight) || d.trains(spec_.k_bias);
        if (dy == no_buffer || !(d.wants(in[0]) || trained)) return;
        auto op = std::make_unique<QkNormRopeBackwardOp>(spec_);
        op->in = {dy};
        if (spec_.norm) op->in.insert(op->in.end(), {in[0], out[1]});
        op->dx = d.wants(in[0]);
        if (op->dx) {
            op->out = {d.contribute_columns(in[0], {spec_.q, spec_.groups, spec_.heads / spec_.groups, spec_.d})};
            d.contribute_columns(in[0], {spec_.k, spec_.groups, 1, spec_.d});
        }
        if (d.trains(spec_.q_weight)) op->q_weight = d.sink(*op, spec_.q_weight);
        if (d.trains(spec_.q_bias)) op->q_bias = d.sink(*op, spec_.q_bias);
        if (d.trains(spec_.k_weight)) op->k_weight = d.sink(*op, spec_.k_weight);
        if (d.trains(spec_.k_bias)) op->k_bias = d.sink(*op, spec_.k_bias);
        d.emit(std::move(op));
    }
};

}  // namespace

std::unique_ptr<Op> make_qk_norm_rope(const QkNormRopeSpec &spec, BufferId qkv, BufferId rotated, BufferId stats) {
    auto op = std::make_unique<QkNormRopeOp>(spec);
    op->in = {qkv};
    op->out = {rotated};
    if (spec.norm) op->out.push_back(stats);
    return op;
}

}  // namespace mdlm

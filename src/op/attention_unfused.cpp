// SPDX-License-Identifier: Apache-2.0
// Softmax attention with scores and probabilities as tensors of the program (Vaswani et al., arXiv 1706.03762, eq. 1).
// Probabilities are kept once, before dropout; dropped ones are made from the counters while they are used (arXiv
// 2205.05198, section 4 stores both).
#include "base/sizes.hpp"
#include "op/attention.hpp"

namespace mdlm {
namespace {

class UnfusedAttentionOpBase : public Op {
public:
    explicit UnfusedAttentionOpBase(const AttentionSpec &spec) : spec_(spec) {}

protected:
    Checked pairs(Extent e) const { return Checked(e.tokens) * e.seq * spec_.heads; }
    Checked head_bytes(Extent e) const { return Checked(e.tokens) * spec_.heads * spec_.d * size_of(spec_.dtype); }
    Checked pair_bytes(Extent e) const { return pairs(e) * size_of(spec_.dtype); }
    // Whole products, masked or not.
    Cost products(Extent e, int64_t count, int64_t bytes) const {
        const int64_t flops = count * spec_.flops(e);
        return {flops, bytes, Work::attention, flops};
    }
    AttentionSpec spec_;
};

class AttentionScoresBackwardOp final : public UnfusedAttentionOpBase {
public:
    // in: dscores, q, k; out: [dq, dk], parts of the gradients of their buffers
    using UnfusedAttentionOpBase::UnfusedAttentionOpBase;
    const char *name() const override { return "attention_scores_backward"; }
    void run(const Call &c) const override {
        const DType t = spec_.dtype;
        c.device.run(AttnScoresBackward{spec_.shape(c.state), c.in[0], spec_.q.at(c.in[1], t), spec_.k.at(c.in[2], t),
                                        dq >= 0 ? spec_.q.at(c.out[dq], t) : Heads{},
                                        dk >= 0 ? spec_.k.at(c.out[dk], t) : Heads{}, c.workspace});
    }
    Cost cost(Extent e) const override { return products(e, 2, pair_bytes(e) + 4 * head_bytes(e)); }
    void kernels(Extent e, const UseKernel &use) const override { spec_.uses(Kernel::attn_scores_backward, e, use); }
    int32_t dq = -1, dk = -1;  // indices of outputs; -1: not wanted
};

class AttentionSoftmaxBackwardOp final : public UnfusedAttentionOpBase {
public:
    // in: dprobabilities, probabilities; out: dscores
    using UnfusedAttentionOpBase::UnfusedAttentionOpBase;
    const char *name() const override { return "attention_softmax_backward"; }
    void run(const Call &c) const override {
        c.device.run(AttnSoftmaxBackward{spec_.shape(c.state), c.in[1], c.in[0], c.out[0]});
    }
    void kernels(Extent e, const UseKernel &use) const override { spec_.uses(Kernel::attn_softmax_backward, e, use); }
    Cost cost(Extent e) const override { return {4 * pairs(e), 3 * pair_bytes(e)}; }
    std::vector<int32_t> in_place() const override { return {0}; }
};

class AttentionContextBackwardOp final : public UnfusedAttentionOpBase {
public:
    // in: dcontext, probabilities, v; out: [dprobabilities, dv, a part of the gradient of its buffer]
    using UnfusedAttentionOpBase::UnfusedAttentionOpBase;
    const char *name() const override { return "attention_context_backward"; }
    void run(const Call &c) const override {
        const DType t = spec_.dtype;
        c.device.run(AttnContextBackward{spec_.shape(c.state), c.in[1], spec_.v.at(c.in[2], t),
                                         spec_.context.at(c.in[0], t), dp >= 0 ? c.out[dp] : nullptr,
                                         dv >= 0 ? spec_.v.at(c.out[dv], t) : Heads{}, c.workspace});
    }
    Cost cost(Extent e) const override { return products(e, 2, 2 * pair_bytes(e) + 3 * head_bytes(e)); }
    void kernels(Extent e, const UseKernel &use) const override { spec_.uses(Kernel::attn_context_backward, e, use); }
    int32_t dp = -1, dv = -1;  // indices of outputs; -1: not wanted
};

class AttentionScoresOp final : public UnfusedAttentionOpBase {
public:
    using UnfusedAttentionOpBase::UnfusedAttentionOpBase;
    const char *name() const override { return "attention_scores"; }
    void run(const Call &c) const override {
        const DType t = spec_.dtype;
        c.device.run(AttnScores{spec_.shape(c.state), spec_.q.at(c.in[0], t), spec_.k.at(c.in[1], t), c.out[0]});
    }
    void kernels(Extent e, const UseKernel &use) const override { spec_.uses(Kernel::attn_scores, e, use); }
    Cost cost(Extent e) const override { return products(e, 1, pair_bytes(e) + 2 * head_bytes(e)); }
    void differentiate(Derivative &d) const override {
        const BufferId dy = d.gradient(out[0]);
        if (dy == no_buffer || !(d.wants(in[0]) || d.wants(in[1]))) return;
        auto op = std::make_unique<AttentionScoresBackwardOp>(spec_);
        op->in = {dy, in[0], in[1]};
        op->dq = contribute_part(d, *op, in[0], spec_.q_columns());
        op->dk = contribute_part(d, *op, in[1], spec_.k_columns());
        d.emit(std::move(op));
    }
};

class AttentionSoftmaxOp final : public UnfusedAttentionOpBase {
public:
    using UnfusedAttentionOpBase::UnfusedAttentionOpBase;
    const char *name() const override { return "attention_softmax"; }
    void run(const Call &c) const override { c.device.run(AttnSoftmax{spec_.shape(c.state), c.in[0], c.out[0]}); }
    void kernels(Extent e, const UseKernel &use) const override { spec_.uses(Kernel::attn_softmax, e, use); }
    Cost cost(Extent e) const override { return {5 * pairs(e), 2 * pair_bytes(e)}; }
    std::vector<int32_t> in_place() const override { return {0}; }
    void differentiate(Derivative &d) const override {
        const BufferId dy = d.gradient(out[0]);
        if (dy == no_buffer || !d.wants(in[0])) return;
        auto op = std::make_unique<AttentionSoftmaxBackwardOp>(spec_);
        op->in = {dy, out[0]};
        op->out = {d.contribute(in[0]).to};
        d.emit(std::move(op));
    }
};

class AttentionContextOp final : public UnfusedAttentionOpBase {
public:
    using UnfusedAttentionOpBase::UnfusedAttentionOpBase;
    const char *name() const override { return "attention_context"; }
    void run(const Call &c) const override {
        const DType t = spec_.dtype;
        c.device.run(AttnContext{spec_.shape(c.state), c.in[0], spec_.v.at(c.in[1], t), spec_.context.at(c.out[0], t)});
    }
    void kernels(Extent e, const UseKernel &use) const override { spec_.uses(Kernel::attn_context, e, use); }
    Cost cost(Extent e) const override { return products(e, 1, pair_bytes(e) + 2 * head_bytes(e)); }
    void differentiate(Derivative &d) const override {
        const BufferId dy = d.gradient(out[0]);
        if (dy == no_buffer || !(d.wants(in[0]) || d.wants(in[1]))) return;
        auto op = std::make_unique<AttentionContextBackwardOp>(spec_);
        op->in = {dy, in[0], in[1]};
        if (d.wants(in[0])) op->dp = 0, op->out = {d.contribute(in[0]).to};
        op->dv = contribute_part(d, *op, in[1], spec_.v_columns());
        d.emit(std::move(op));
    }
};

}  // namespace

std::unique_ptr<Op> make_attention_scores(const AttentionSpec &spec, BufferId q, BufferId k, BufferId scores) {
    auto op = std::make_unique<AttentionScoresOp>(spec);
    op->in = {q, k};
    op->out = {scores};
    return op;
}

std::unique_ptr<Op> make_attention_softmax(const AttentionSpec &spec, BufferId scores, BufferId probabilities) {
    auto op = std::make_unique<AttentionSoftmaxOp>(spec);
    op->in = {scores};
    op->out = {probabilities};
    return op;
}

std::unique_ptr<Op> make_attention_context(const AttentionSpec &spec, BufferId probabilities, BufferId v,
                                           BufferId context) {
    auto op = std::make_unique<AttentionContextOp>(spec);
    op->in = {probabilities, v};
    op->out = {context};
    return op;
}

}  // namespace mdlm

// SPDX-License-Identifier: Apache-2.0
// Softmax attention without the [s, s] tensors: online softmax forward (Milakov, Gimelshein, arXiv 1805.02867),
// probabilities rebuilt from each row's maximum and sum in backward (Dao et al., arXiv 2205.14135, algorithm 4).
#include "base/sizes.hpp"
#include "op/attention.hpp"

namespace mdlm {

Attention AttentionSpec::shape(const RunState &state) const {
    Attention a{};
    a.dtype = dtype, a.tokens = state.tokens, a.mask = state.mask;
    a.dropout = state.dropout(dropout, Site::probabilities);
    a.heads = heads, a.groups = groups, a.d = d, a.scale = scale;
    a.all_heads = all_heads, a.first_head = state.rank * heads;
    return a;
}

void AttentionSpec::uses(Kernel kernel, Extent e, const UseKernel &use) const {
    KernelSize s;
    s.dtype = dtype, s.rows = e.tokens, s.seq = e.seq, s.heads = heads, s.groups = groups, s.d = d;
    s.window = mask.left >= 0 || mask.right >= 0;
    for (const mdlm_mask_type type : {MDLM_MASK_NO_MASK, MDLM_MASK_CAUSAL, MDLM_MASK_BLOCK_CAUSAL}) {
        if (type == MDLM_MASK_BLOCK_CAUSAL && mask.block < 1) continue;
        s.mask = type;
        with_dropout(use, kernel, s, dropout);
    }
}

Checked AttentionSpec::flops(Extent e) const { return 2 * Checked(e.seq) * e.tokens * (Checked(heads) * d); }

Checked AttentionSpec::visible_flops(Extent e) const {
    const bool window = mask.left >= 0 || mask.right >= 0;
    __int128 pairs = static_cast<__int128>(e.seq) * e.seq;
    if (mask.type == MDLM_MASK_CAUSAL && !window) {
        pairs = (pairs + e.seq) / 2;
    } else if (mask.type != MDLM_MASK_NO_MASK || window) {
        Mask whole = mask;  // one document over the sequence
        whole.seq = e.seq;
        pairs = 0;
        for (int64_t i = 0; i < e.seq; ++i) pairs += whole.last(i) - whole.first(i);
    }
    return Checked(static_cast<int64_t>(static_cast<__int128>(flops(e)) * pairs / e.seq / e.seq));
}

namespace {

Checked qkvo_bytes(const AttentionSpec &s, Extent e) {
    return Checked(e.tokens) * 2 * (s.heads + s.groups) * s.d * size_of(s.dtype);
}

// The rows' maxima, and behind those of this batch the inverses of their sums.
struct SoftmaxStatistics {
    void *row_max, *inverse_sum;
    SoftmaxStatistics(const AttentionSpec &s, Extent e, void *base)
        : row_max(base), inverse_sum(static_cast<char *>(base) + e.tokens * s.heads * size_of(wide(s.dtype))) {}
};

class FusedAttentionBackwardOp final : public Op {
public:
    explicit FusedAttentionBackwardOp(const AttentionSpec &spec) : spec_(spec) {}
    // in: dcontext, q, k, v, context, statistics; out: [dq, dk, dv], parts of the gradients of their buffers
    const char *name() const override { return "attention_backward"; }
    void run(const Call &c) const override {
        const DType t = spec_.dtype;
        AttentionBackward a{};
        a.shape = spec_.shape(c.state);
        a.dcontext = spec_.context.at(c.in[0], t);
        a.q = spec_.q.at(c.in[1], t), a.k = spec_.k.at(c.in[2], t), a.v = spec_.v.at(c.in[3], t);
        a.context = spec_.context.at(c.in[4], t);
        const SoftmaxStatistics kept(spec_, c.state.extent(), c.in[5]);
        a.row_max = kept.row_max, a.inverse_sum = kept.inverse_sum;
        if (dq >= 0) a.dq = spec_.q.at(c.out[dq], t);
        if (dk >= 0) a.dk = spec_.k.at(c.out[dk], t);
        if (dv >= 0) a.dv = spec_.v.at(c.out[dv], t);
        a.workspace = c.workspace;
        c.device.run(a);
    }
    // Four products; the fifth, which rebuilds the scores, is the kernel's own replay and not counted.
    Cost cost(Extent e) const override {
        return {4 * spec_.flops(e), 2 * qkvo_bytes(spec_, e), Work::attention, 5 * spec_.visible_flops(e)};
    }
    void kernels(Extent e, const UseKernel &use) const override { spec_.uses(Kernel::attention_backward, e, use); }
    int32_t dq = -1, dk = -1, dv = -1;  // indices of outputs; -1: not wanted

private:
    AttentionSpec spec_;
};

class FusedAttentionOp final : public Op {
public:
    explicit FusedAttentionOp(const AttentionSpec &spec) : spec_(spec) {}
    const char *name() const override { return "attention"; }
    void run(const Call &c) const override {
        const DType t = spec_.dtype;
        AttentionForward a{};
        a.shape = spec_.shape(c.state);
        a.q = spec_.q.at(c.in[0], t), a.k = spec_.k.at(c.in[1], t), a.v = spec_.v.at(c.in[2], t);
        a.context = spec_.context.at(c.out[0], t);
        const SoftmaxStatistics kept(spec_, c.state.extent(), c.out[1]);
        a.row_max = kept.row_max, a.inverse_sum = kept.inverse_sum;
        a.workspace = c.workspace;
        c.device.run(a);
    }
    Cost cost(Extent e) const override {
        return {2 * spec_.flops(e), qkvo_bytes(spec_, e), Work::attention, 2 * spec_.visible_flops(e)};
    }
    void kernels(Extent e, const UseKernel &use) const override { spec_.uses(Kernel::attention_forward, e, use); }
    void differentiate(Derivative &d) const override {
        const BufferId dy = d.gradient(out[0]);
        if (dy == no_buffer || !(d.wants(in[0]) || d.wants(in[1]) || d.wants(in[2]))) return;
        auto op = std::make_unique<FusedAttentionBackwardOp>(spec_);
        op->in = {dy, in[0], in[1], in[2], out[0], out[1]};
        op->dq = contribute_part(d, *op, in[0], spec_.q_columns());
        op->dk = contribute_part(d, *op, in[1], spec_.k_columns());
        op->dv = contribute_part(d, *op, in[2], spec_.v_columns());
        d.emit(std::move(op));
    }

private:
    AttentionSpec spec_;
};

}  // namespace

std::unique_ptr<Op> make_fused_attention(const AttentionSpec &spec, BufferId q, BufferId k, BufferId v,
                                         BufferId context, BufferId statistics) {
    auto op = std::make_unique<FusedAttentionOp>(spec);
    op->in = {q, k, v};
    op->out = {context, statistics};
    return op;
}

}  // namespace mdlm

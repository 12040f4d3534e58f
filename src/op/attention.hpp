// SPDX-License-Identifier: Apache-2.0
#pragma once
#include "base/sizes.hpp"
#include "op/op.hpp"

namespace mdlm {

struct AttentionSpec {
    DType dtype = DType::f32;
    int64_t heads = 0, groups = 0, d = 0;  // on this rank
    int64_t all_heads = 0;                 // on all ranks
    double scale = 0.0, dropout = 0.0;
    HeadLayout q, k, v;  // in their buffers
    HeadLayout context;
    Attention shape(const RunState &state) const;
    // One of the attention kernels, under every mask that a batch may ask for.
    void uses(Kernel kernel, Extent e, const UseKernel &use) const;
    Mask mask;  // the config's; what runs has its window and blocks, and the type that the batch says
    HeadColumns q_columns() const { return {q, groups, heads / groups, d}; }
    HeadColumns k_columns() const { return {k, groups, 1, d}; }
    HeadColumns v_columns() const { return {v, groups, 1, d}; }
    // Of one product over all pairs of a sequence: 2 s tokens heads d, the mask not counted off.
    Checked flops(Extent e) const;
    Checked visible_flops(Extent e) const;  // and what is left of them under the mask
};

// Gradients of q, k and v go to the gradients of the buffers they stand in, each where it is wanted.
// Fused: q, k, v -> context, statistics (two for each head and token). Backward reads all of them.
std::unique_ptr<Op> make_fused_attention(const AttentionSpec &spec, BufferId q, BufferId k, BufferId v,
                                         BufferId context, BufferId statistics);

// Unfused, in three steps. Backward reads probabilities, v; probabilities; q, k. Scores are read by nobody's backward.
std::unique_ptr<Op> make_attention_scores(const AttentionSpec &spec, BufferId q, BufferId k, BufferId scores);
std::unique_ptr<Op> make_attention_softmax(const AttentionSpec &spec, BufferId scores, BufferId probabilities);
std::unique_ptr<Op> make_attention_context(const AttentionSpec &spec, BufferId probabilities, BufferId v,
                                           BufferId context);

}  // namespace mdlm

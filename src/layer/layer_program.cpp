// SPDX-License-Identifier: Apache-2.0
// The transformer layer, pre-norm (Xiong et al., arXiv 2002.04745), in Megatron's terms. Diffusion and autoregressive
// models differ only in the mask.
#include "layer/builder.hpp"

namespace mdlm {

Program make_layer_program(const Config &c) {
    Builder b(c);
    const int64_t qkv_width = (c.num_attention_heads + 2 * c.num_query_groups) * c.kv_channels;

    const BufferId x = b.input("input", c.hidden_size);

    const BufferId u1 = b.norm("input_layernorm", "input_layernorm", x);
    const BufferId qkv =
        b.column_linear("linear_qkv", "self_attention.linear_qkv", u1, qkv_width, c.add_qkv_bias, false);
    const Builder::QKV heads = b.qk_norm_rope("rotated_qk", b.split_qkv(qkv));
    const BufferId context = b.attention("core_attn", heads);
    const BufferId y1 = b.row_linear("linear_proj", "self_attention.linear_proj", context);
    const BufferId x1 =
        b.bias_dropout_add("attention_residual", y1, "self_attention.linear_proj.bias", x, Site::attention_output);

    const BufferId u2 = b.norm("pre_mlp_layernorm", "pre_mlp_layernorm", x1);
    const int64_t fc1_width = (c.gated() ? 2 : 1) * c.ffn_hidden_size;
    const BufferId g = b.column_linear("linear_fc1", "mlp.linear_fc1", u2, fc1_width, c.add_bias_linear, c.gated());
    const BufferId m = b.activation("mlp_act", g);
    const BufferId y2 = b.row_linear("linear_fc2", "mlp.linear_fc2", m);
    b.output(b.bias_dropout_add("output", y2, "mlp.linear_fc2.bias", x1, Site::mlp_output));
    return b.take();
}

Program make_final_norm_program(const Config &c) {
    Builder b(c);
    const BufferId x = b.input("input", c.hidden_size);
    b.output(
        b.norm("output", "final_layernorm", x, true));  // nothing keeps its output, so its statistics go with its input
    return b.take();
}

}  // namespace mdlm

// SPDX-License-Identifier: Apache-2.0
// The transformer layer, pre-norm (Xiong et al., arXiv 2002.04745), in Megatron's terms. Diffusion and autoregressive
// models differ only in the mask.
#include "layer/builder.hpp"

namespace mdlm {

Program make_layer_program(const Config &c) {
    constexpr uint32_t layernorm = MDLM_RECOMPUTE_MODULE_LAYERNORM, qkv_module = MDLM_RECOMPUTE_MODULE_QKV,
                       qk_norm_rope = MDLM_RECOMPUTE_MODULE_QK_NORM_ROPE, core_attn = MDLM_RECOMPUTE_MODULE_CORE_ATTN,
                       mlp = MDLM_RECOMPUTE_MODULE_MLP, mlp_act = MDLM_RECOMPUTE_MODULE_MLP_ACT, none = 0;
    Builder b(c);
    const BufferId x = b.input("input", c.hidden_size);

    const BufferId u1 = b.in(layernorm).norm("input_layernorm", "input_layernorm", x);
    const BufferId qkv =
        b.in(qkv_module).column_linear("linear_qkv", "self_attention.linear_qkv", u1, b.qkv_rows(), c.add_qkv_bias);
    const Builder::QKV heads = b.in(qkv_module | qk_norm_rope).qk_norm_rope("rotated_qk", b.split_qkv(qkv));
    const BufferId context = b.in(core_attn).attention("core_attn", heads);
    const BufferId y1 = b.in(none).row_linear("linear_proj", "self_attention.linear_proj", context);
    const BufferId x1 =
        b.bias_dropout_add("attention_residual", y1, "self_attention.linear_proj.bias", x, Site::attention_output);

    const BufferId u2 = b.in(layernorm).norm("pre_mlp_layernorm", "pre_mlp_layernorm", x1);
    const BufferId g = b.in(mlp).column_linear("linear_fc1", "mlp.linear_fc1", u2, b.fc1_rows(), c.add_bias_linear);
    const BufferId m = b.in(mlp | mlp_act).activation("mlp_act", g);
    const BufferId y2 = b.in(none).row_linear("linear_fc2", "mlp.linear_fc2", m);
    b.output(b.bias_dropout_add("output", y2, "mlp.linear_fc2.bias", x1, Site::mlp_output));
    return b.take();
}

Program make_final_norm_program(const Config &c) {
    Builder b(c);
    const BufferId x = b.input("input", c.hidden_size);
    b.output(b.norm("output", "final_layernorm", x, Builder::Statistics::with_input));
    return b.take();
}

}  // namespace mdlm

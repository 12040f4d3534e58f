// SPDX-License-Identifier: Apache-2.0
#include "models.hpp"

#include "../text.hpp"

namespace mdlm::tools {

const std::vector<Model> &models() {
    // A decoder of GPT-3: LayerNorm, GELU with 4 h, biases, learned positions.
#define MDLM_GPT3 "--position-embedding-type", "learned_absolute", "--attention-mask-type", "causal", "--bf16"
#define MDLM_LLAMA                                                                                                     \
    "--normalization", "RMSNorm", "--swiglu", "--disable-bias-linear", "--attention-mask-type", "causal", "--bf16"
    static const std::vector<Model> all = {
        {"gpt2",
         "GPT-2, 124 million parameters with its embeddings: 12 layers, h 768, 12 heads, GELU by tanh, in f32; "
         "positions are learned, outside",
         {"--num-layers", "12", "--hidden-size", "768", "--num-attention-heads", "12", "--activation-func", "gelu_tanh",
          "--position-embedding-type", "learned_absolute", "--attention-mask-type", "causal"},
         1024},
        {"megadlms-1.7b",
         "MegaDLMs' diffusion model: RMSNorm, QK-norm, SwiGLU, no mask",
         {"--num-layers", "28", "--hidden-size", "2048", "--num-attention-heads", "16", "--ffn-hidden-size", "6144",
          "--normalization", "RMSNorm", "--norm-epsilon", "1e-6", "--qk-layernorm", "--swiglu", "--disable-bias-linear",
          "--attention-mask-type", "no_mask", "--bf16"},
         2048},
        {"gpt3-22b",
         "arXiv 2205.05198, table 3: 48 layers, h 6144, 64 heads, s 2048",
         {"--num-layers", "48", "--hidden-size", "6144", "--num-attention-heads", "64", MDLM_GPT3},
         2048},
        {"gpt3-175b",
         "arXiv 2205.05198, table 3: 96 layers, h 12288, 96 heads, s 2048",
         {"--num-layers", "96", "--hidden-size", "12288", "--num-attention-heads", "96", MDLM_GPT3},
         2048},
        {"llama-8b",
         "Llama 3 8B: 32 layers, h 4096, 32 heads in 8 groups, ffn 14336",
         {"--num-layers", "32", "--hidden-size", "4096", "--num-attention-heads", "32", "--group-query-attention",
          "--num-query-groups", "8", "--ffn-hidden-size", "14336", "--rotary-base", "500000", MDLM_LLAMA},
         8192},
        {"llama-70b",
         "Llama 3 70B: 80 layers, h 8192, 64 heads in 8 groups, ffn 28672",
         {"--num-layers", "80", "--hidden-size", "8192", "--num-attention-heads", "64", "--group-query-attention",
          "--num-query-groups", "8", "--ffn-hidden-size", "28672", "--rotary-base", "500000", MDLM_LLAMA},
         8192},
        {"30b",
         "assumed, for the article gives none: 48 layers, h 7168, 56 heads, 4 h, GPT-3's kind of layer (the shape of "
         "OPT-30B)",
         {"--num-layers", "48", "--hidden-size", "7168", "--num-attention-heads", "56", MDLM_GPT3},
         2048},
    };
#undef MDLM_GPT3
#undef MDLM_LLAMA
    return all;
}

const Model &model_of(const std::string &name) {
    std::string names;
    for (const Model &m : models()) {
        if (name == m.name) return m;
        names += (names.empty() ? "" : ", ") + std::string(m.name);
    }
    bad("mdlm plan: --model: expected one of %s, seen '%s'", names.c_str(), name.c_str());
}

}  // namespace mdlm::tools

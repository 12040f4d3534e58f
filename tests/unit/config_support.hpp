// SPDX-License-Identifier: Apache-2.0
// Small helpers of the tests on settings.
#pragma once
#include <cstring>
#include <string>

#include <doctest/doctest.h>

#include "mdlm/mdlm.h"

inline mdlm_config small() {
    mdlm_config c = MDLM_CONFIG_INIT;
    c.num_layers = 4;
    c.hidden_size = 64;
    c.num_attention_heads = 8;
    return c;
}

// "" when it is valid, otherwise the text; the status must fit.
inline std::string reasons(const mdlm_config &c, mdlm_status status = MDLM_ERROR_CONFIG) {
    const mdlm_status seen = mdlm_config_validate(&c);
    if (seen == MDLM_OK) return "";
    CHECK(seen == status);
    return mdlm_last_error();
}

inline std::string get(const mdlm_config &c, const char *key) {
    char buf[256];
    size_t length = 0;
    REQUIRE(mdlm_config_get(&c, key, buf, sizeof buf, &length) == MDLM_OK);
    CHECK(length == std::strlen(buf));
    return buf;
}

// The line of a set that must fail and change nothing.
inline std::string refused(const char *key, const char *value) {
    mdlm_config c = small();
    const mdlm_config before = c;
    CHECK(mdlm_config_set(&c, key, value) == MDLM_ERROR_CONFIG);
    CHECK(std::memcmp(&c, &before, sizeof c) == 0);
    return mdlm_last_error();
}

// Two valid values of every key, none of them the default.
struct Sample {
    const char *key, *one, *two;
};
inline constexpr Sample samples[] = {
    {"num_layers", "1", "4096"},
    {"layer_offset", "1", "4095"},
    {"total_num_layers", "1", "4096"},
    {"hidden_size", "1", "16777216"},
    {"num_attention_heads", "1", "65536"},
    {"num_query_groups", "1", "65536"},
    {"kv_channels", "1", "9223372036854775807"},
    {"ffn_hidden_size", "1", "9223372036854775807"},
    {"normalization", "RMSNorm", "RMSNorm"},
    {"layernorm_zero_centered_gamma", "true", "true"},
    {"layernorm_epsilon", "1e-06", "5e-324"},
    {"qk_layernorm", "true", "true"},
    {"final_layernorm", "false", "false"},
    {"add_bias_linear", "false", "false"},
    {"add_qkv_bias", "true", "true"},
    {"activation_func", "gelu_tanh", "geglu"},
    {"position_embedding_type", "none", "none"},
    {"rotary_base", "5e+05", "123456"},
    {"rotary_percent", "0.5", "0.1"},
    {"rotary_interleaved", "true", "true"},
    {"use_rope_scaling", "true", "true"},
    {"rope_scaling_factor", "1", "32"},
    {"rope_low_freq_factor", "0.5", "2"},
    {"rope_high_freq_factor", "3", "0.30000000000000004"},
    {"rope_original_max_position", "1", "4096"},
    {"seq_len_interpolation_factor", "2", "0.5"},
    {"attention_mask_type", "no_mask", "block_causal"},
    {"mask_block_size", "1", "2147483647"},
    {"window_left", "0", "128"},
    {"window_right", "0", "9223372036854775807"},
    {"softmax_scale", "0.35355339059327373", "1"},
    {"attention_backend", "fused", "unfused"},
    {"attention_dropout", "0.1", "0.9999999999999999"},
    {"hidden_dropout", "0.1", "0.25"},
    {"batch_first", "true", "true"},
    {"params_dtype", "bf16", "f64"},
    {"grad_dtype", "f32", "f64"},
    {"init_method_std", "0.01", "0"},
    {"output_init_std", "0.001", "1"},
    {"tensor_model_parallel_size", "2", "8"},
    {"sequence_parallel", "true", "true"},
    {"recompute_granularity", "selective", "full"},
    {"recompute_method", "uniform", "block"},
    {"recompute_num_layers", "1", "4"},
    {"recompute_modules", "core_attn,qkv", "qk_norm_rope,layernorm,mlp_act,mlp"},
    {"distribute_saved_activations", "true", "true"},
    {"cpu_offloading", "true", "true"},
    {"cpu_offloading_num_layers", "1", "4"},
    {"memory_budget", "1", "9223372036854775807"},
    {"memory_budget_includes_parameters", "true", "true"},
};

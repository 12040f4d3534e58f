// SPDX-License-Identifier: Apache-2.0
// Rules on settings, each with the exact line.
#include <cmath>
#include <cstring>
#include <initializer_list>
#include <limits>
#include <string>
#include <utility>

#include <doctest/doctest.h>

#include "base/config.hpp"
#include "base/status.hpp"
#include "config_support.hpp"
#include "mdlm/mdlm.h"

namespace {

// reasons() of small() with some settings changed by text.
std::string with(std::initializer_list<std::pair<const char *, const char *>> settings) {
    mdlm_config c = small();
    for (const auto &setting : settings) {
        INFO(setting.first, " = ", setting.second);
        REQUIRE(mdlm_config_set(&c, setting.first, setting.second) == MDLM_OK);
    }
    return reasons(c);
}

}  // namespace

TEST_CASE("rules: the article's example is refused with both reasons") {
    mdlm_config c = MDLM_CONFIG_INIT;
    c.num_layers = 32;
    c.hidden_size = 4096;
    c.num_attention_heads = 32;
    c.recompute_granularity = MDLM_RECOMPUTE_GRANULARITY_SELECTIVE;
    c.recompute_method = MDLM_RECOMPUTE_METHOD_UNIFORM;
    c.recompute_num_layers = 2;
    c.distribute_saved_activations = 1;
    CHECK(reasons(c) == "recompute_method = uniform and recompute_num_layers = 2: only with recompute_granularity = "
                        "full, not selective; "
                        "distribute_saved_activations needs tensor_model_parallel_size > 1 (it is 1), "
                        "recompute_granularity = full (it is selective)");
}

TEST_CASE("rules: heads, widths, layers") {
    CHECK(with({{"num_query_groups", "3"}}) == "num_attention_heads = 8 is not divisible by num_query_groups = 3");
    CHECK(with({{"num_query_groups", "7"}}) == "num_attention_heads = 8 is not divisible by num_query_groups = 7");
    CHECK(with({{"num_query_groups", "16"}}) == "num_attention_heads = 8 is not divisible by num_query_groups = 16");
    CHECK(with({{"hidden_size", "770"}, {"num_attention_heads", "12"}}) ==
          "hidden_size = 770 is not divisible by num_attention_heads = 12, and kv_channels is not set");
    CHECK(with({{"hidden_size", "770"}, {"num_attention_heads", "12"}, {"kv_channels", "64"}}) == "");
    CHECK(with({{"num_attention_heads", "6"}, {"kv_channels", "8"}, {"tensor_model_parallel_size", "4"}}) ==
          "num_attention_heads = 6 is not divisible by tensor_model_parallel_size = 4");
    CHECK(with({{"num_query_groups", "2"}, {"tensor_model_parallel_size", "4"}}) ==
          "num_query_groups = 2 is not divisible by tensor_model_parallel_size = 4");
    CHECK(with({{"ffn_hidden_size", "98"}, {"tensor_model_parallel_size", "4"}}) ==
          "ffn_hidden_size = 98 is not divisible by tensor_model_parallel_size = 4");
    CHECK(with({{"layer_offset", "4093"}}) == "layer_offset = 4093 and num_layers = 4: expected at most 4096 together");
    CHECK(with({{"layer_offset", "4092"}}) == "");
    CHECK(with({{"layer_offset", "3"}, {"total_num_layers", "7"}}) == "");
    CHECK(with({{"layer_offset", "3"}, {"total_num_layers", "6"}}) ==
          "total_num_layers = 6: expected at least layer_offset + num_layers = 7");
    mdlm_config c = small();
    c.total_num_layers = 4097;
    CHECK(reasons(c) == "total_num_layers = 4097: expected an integer in 0 .. 4096");
}

TEST_CASE("rules: positions, mask, precision") {
    CHECK(with({{"rotary_percent", "0.4"}}) ==
          "rope turns 3 of 8 channels (rotary_percent = 0.4): expected an even number >= 2");
    CHECK(with({{"rotary_percent", "0.1"}}) ==
          "rope turns 0 of 8 channels (rotary_percent = 0.1): expected an even number >= 2");
    CHECK(with({{"rotary_percent", "0.1"}, {"position_embedding_type", "none"}}) == "");
    CHECK(with({{"rotary_percent", "0.25"}}) == "");
    CHECK(with({{"rope_low_freq_factor", "4"}}) ==
          "rope_high_freq_factor = 4: expected more than rope_low_freq_factor = 4");
    CHECK(with({{"attention_mask_type", "block_causal"}}) ==
          "mask_block_size = 0: expected >= 1 with attention_mask_type = block_causal");
    CHECK(with({{"attention_mask_type", "block_causal"}, {"mask_block_size", "1"}}) == "");
    CHECK(with({{"mask_block_size", "4"}}) == "");  // a batch may ask for block_causal
    CHECK(with({{"grad_dtype", "bf16"}, {"params_dtype", "bf16"}}) ==
          "grad_dtype = bf16: expected f32 with params_dtype = bf16");
    CHECK(with({{"grad_dtype", "f32"}, {"params_dtype", "f64"}}) ==
          "grad_dtype = f32: expected f64 with params_dtype = f64");
    CHECK(with({{"grad_dtype", "f64"}, {"params_dtype", "f64"}}) == "");
    CHECK(with({{"grad_dtype", "f32"}, {"params_dtype", "f16"}}) == "");
    CHECK(with({{"sequence_parallel", "1"}}) == "");  // with t = 1 the same as without
    CHECK(with({{"window_left", "3"}, {"window_right", "0"}, {"attention_mask_type", "no_mask"}}) == "");
}

TEST_CASE("rules: recompute, distribute, offload") {
    CHECK(with({{"recompute_granularity", "full"}}) == "");
    CHECK(with({{"recompute_granularity", "full"}, {"recompute_num_layers", "3"}}) == "");
    CHECK(with({{"recompute_granularity", "full"}, {"recompute_method", "uniform"}, {"recompute_num_layers", "3"}}) ==
          "");
    CHECK(with({{"recompute_granularity", "full"}, {"recompute_method", "uniform"}}) ==
          "recompute_num_layers = 0: expected 1 .. 4 (num_layers) with recompute_granularity = full and "
          "recompute_method = uniform");
    CHECK(with({{"recompute_granularity", "full"}, {"recompute_method", "block"}, {"recompute_num_layers", "5"}}) ==
          "recompute_num_layers = 5: expected 1 .. 4 (num_layers) with recompute_granularity = full and "
          "recompute_method = block");
    CHECK(with({{"recompute_granularity", "full"}, {"recompute_num_layers", "5"}}) ==
          "recompute_num_layers = 5: expected 1 .. 4 (num_layers) with recompute_granularity = full");
    CHECK(with({{"recompute_num_layers", "2"}}) ==
          "recompute_num_layers = 2: only with recompute_granularity = full, not none");
    CHECK(with({{"recompute_granularity", "selective"}, {"recompute_method", "block"}}) ==
          "recompute_method = block: only with recompute_granularity = full, not selective");
    CHECK(with({{"recompute_granularity", "selective"}, {"recompute_modules", "mlp"}}) == "");
    CHECK(with({{"recompute_granularity", "full"}, {"recompute_modules", "mlp"}}) ==
          "recompute_modules = mlp: only with recompute_granularity = selective, not full");
    CHECK(with({{"recompute_modules", "qkv,mlp_act"}}) ==
          "recompute_modules = qkv,mlp_act: only with recompute_granularity = selective, not none");

    CHECK(with({{"distribute_saved_activations", "1"}}) ==
          "distribute_saved_activations needs tensor_model_parallel_size > 1 (it is 1), recompute_granularity = full "
          "(it is none), "
          "a recompute_method (it is none)");
    CHECK(with({{"distribute_saved_activations", "1"},
                {"tensor_model_parallel_size", "2"},
                {"recompute_granularity", "full"}}) ==
          "distribute_saved_activations needs a recompute_method (it is none)");
    CHECK(with({{"distribute_saved_activations", "1"},
                {"tensor_model_parallel_size", "2"},
                {"recompute_granularity", "full"},
                {"recompute_method", "block"},
                {"recompute_num_layers", "1"},
                {"sequence_parallel", "1"}}) == "distribute_saved_activations needs no sequence_parallel (it is true)");
    CHECK(with({{"distribute_saved_activations", "1"},
                {"tensor_model_parallel_size", "2"},
                {"recompute_granularity", "full"},
                {"recompute_method", "block"},
                {"recompute_num_layers", "1"}}) == "");

    CHECK(with({{"cpu_offloading_num_layers", "2"}}) == "cpu_offloading_num_layers = 2: only with cpu_offloading");
    CHECK(with({{"cpu_offloading", "1"}}) ==
          "cpu_offloading_num_layers = 0: expected 1 .. 4 (num_layers) with cpu_offloading");
    CHECK(with({{"cpu_offloading", "1"}, {"cpu_offloading_num_layers", "5"}}) ==
          "cpu_offloading_num_layers = 5: expected 1 .. 4 (num_layers) with cpu_offloading");
    CHECK(with({{"cpu_offloading", "1"}, {"cpu_offloading_num_layers", "4"}, {"recompute_granularity", "full"}}) == "");
}

TEST_CASE("rules: fields written directly, NaN and unknown values included") {
    const auto broken = [](auto mdlm_config::*field, auto value) {
        mdlm_config c = small();
        c.*field = value;
        return reasons(c);
    };
    const double nan = std::nan(""), inf = std::numeric_limits<double>::infinity();
    for (double mdlm_config::*field :
         {&mdlm_config::layernorm_epsilon, &mdlm_config::rotary_base, &mdlm_config::rotary_percent,
          &mdlm_config::rope_scaling_factor, &mdlm_config::rope_low_freq_factor, &mdlm_config::rope_high_freq_factor,
          &mdlm_config::seq_len_interpolation_factor, &mdlm_config::softmax_scale, &mdlm_config::attention_dropout,
          &mdlm_config::hidden_dropout, &mdlm_config::init_method_std, &mdlm_config::output_init_std})
        for (const double value : {nan, inf, -inf, -1.0}) CHECK(broken(field, value) != "");
    CHECK(broken(&mdlm_config::attention_dropout, nan) == "attention_dropout = nan: expected a number in [0, 1)");
    CHECK(broken(&mdlm_config::rope_scaling_factor, 0.5) == "rope_scaling_factor = 0.5: expected a number >= 1");
    CHECK(broken(&mdlm_config::qk_layernorm, 2) == "qk_layernorm = 2: expected 0 or 1");
    CHECK(broken(&mdlm_config::activation_func, 5) ==
          "activation_func = 5: expected one of gelu (0), gelu_tanh (1), squared_relu (2), swiglu (3), geglu (4)");
    CHECK(broken(&mdlm_config::params_dtype, 0) ==
          "params_dtype = 0: expected one of f32 (1), bf16 (2), f16 (3), f64 (4)");
    CHECK(broken(&mdlm_config::attention_mask_type, 0) ==
          "attention_mask_type = 0: expected one of no_mask (1), causal (2), block_causal (3)");
    CHECK(broken(&mdlm_config::recompute_modules, 64u) ==
          "recompute_modules = 64: expected bits of core_attn (1), qkv (2), qk_norm_rope (4), layernorm (8), mlp_act "
          "(16), mlp (32)");
    CHECK(broken(&mdlm_config::recompute_granularity, -1) ==
          "recompute_granularity = -1: expected one of none (0), selective (1), full (2)");
    CHECK(broken(&mdlm_config::tensor_model_parallel_size, 0) ==
          "tensor_model_parallel_size = 0: expected an integer >= 1");
    CHECK(broken(&mdlm_config::window_left, -2) == "window_left = -2: expected an integer >= -1");
    CHECK(broken(&mdlm_config::num_layers, 4097) == "num_layers = 4097: expected an integer in 1 .. 4096");
    CHECK(broken(&mdlm_config::num_attention_heads, -8) ==
          "num_attention_heads = -8: expected an integer in 1 .. 65536");
}

TEST_CASE("rules: sizes that overflow, and more reasons than a line holds") {
    mdlm_config c = small();
    c.kv_channels = std::numeric_limits<int64_t>::max() - 1;
    CHECK(reasons(c, MDLM_ERROR_OVERFLOW) == "num_layers = 4, hidden_size = 64, num_attention_heads = 8, kv_channels = "
                                             "9223372036854775806, ffn_hidden_size = 256: "
                                             "the bytes of the parameters do not fit in 63 bits");
    c = small();
    c.ffn_hidden_size = int64_t{1} << 60;
    CHECK(mdlm_config_validate(&c) == MDLM_ERROR_OVERFLOW);
    c.ffn_hidden_size = int64_t{1} << 48;  // 3 * 65 * 5 * 8 * 2^48 < 2^61
    CHECK(mdlm_config_validate(&c) == MDLM_OK);

    mdlm_config bad;
    std::memset(&bad, 0xff, sizeof bad);
    bad.struct_size = sizeof bad;
    const std::string all = reasons(bad);
    CHECK(all.size() <= 511);
    CHECK(all.starts_with("num_layers = -1: expected an integer in 1 .. 4096; layer_offset = -1"));
    CHECK(all.ends_with(" more"));
}

TEST_CASE("rules: a memory budget excludes what the planner decides") {
    CHECK(with({{"memory_budget", "1GiB"}}) == "");
    CHECK(with({{"memory_budget", "1GiB"},
                {"memory_budget_includes_parameters", "1"},
                {"cpu_offloading", "1"},
                {"cpu_offloading_num_layers", "2"}}) == "");
    CHECK(with({{"memory_budget_includes_parameters", "1"}}) ==
          "memory_budget_includes_parameters: only with memory_budget");
    CHECK(with({{"memory_budget", "1000"},
                {"recompute_granularity", "full"},
                {"recompute_method", "block"},
                {"recompute_num_layers", "2"}}) ==
          "memory_budget = 1000 excludes recompute_granularity = full, recompute_method = block, recompute_num_layers "
          "= 2: the planner decides "
          "what is replayed");
    CHECK(with({{"memory_budget", "1000"}, {"recompute_granularity", "selective"}, {"recompute_modules", "mlp"}}) ==
          "memory_budget = 1000 excludes recompute_granularity = selective, recompute_modules = mlp: the planner "
          "decides what is replayed");
    mdlm_config c = small();
    c.memory_budget = -1;
    CHECK(reasons(c) == "memory_budget = -1: expected bytes >= 0");
}

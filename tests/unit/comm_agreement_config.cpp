// SPDX-License-Identifier: Apache-2.0
// Ranks whose settings, frozen parameters, plans or devices differ; and those whose threads may.
#include <set>

#include "comm_agreement.hpp"

using namespace mdlm_test;

TEST_CASE("ranks with other configs: each setting is named") {
    struct Setting {
        const char *key, *here, *there;
        std::vector<std::pair<const char *, const char *>> all;  // on all ranks
    };
    const std::vector<std::pair<const char *, const char *>> full = {
        {"recompute_granularity", "full"}, {"recompute_method", "uniform"}, {"recompute_num_layers", "1"}};
    const std::vector<Setting> settings = {
        {"num_layers", "2", "3", {}},
        {"layer_offset", "0", "5", {}},
        {"hidden_size", "16", "32", {}},
        {"num_attention_heads", "4", "8", {}},
        {"num_query_groups", "0", "4", {}},
        {"kv_channels", "0", "8", {}},
        {"ffn_hidden_size", "0", "32", {}},
        {"normalization", "LayerNorm", "RMSNorm", {}},
        {"layernorm_zero_centered_gamma", "0", "1", {}},
        {"layernorm_epsilon", "1e-05", "0.001", {}},
        {"qk_layernorm", "0", "1", {}},
        {"final_layernorm", "1", "0", {}},
        {"add_bias_linear", "1", "0", {}},
        {"add_qkv_bias", "0", "1", {}},
        {"activation_func", "gelu", "swiglu", {}},
        {"position_embedding_type", "rope", "none", {}},
        {"rotary_base", "10000", "500", {}},
        {"rotary_percent", "1", "0.5", {}},
        {"rotary_interleaved", "0", "1", {}},
        {"use_rope_scaling", "0", "1", {}},
        {"rope_scaling_factor", "8", "4", {}},
        {"rope_low_freq_factor", "1", "2", {}},
        {"rope_high_freq_factor", "4", "8", {}},
        {"rope_original_max_position", "8192", "64", {}},
        {"seq_len_interpolation_factor", "1", "2", {}},
        {"attention_mask_type", "causal", "no_mask", {}},
        {"mask_block_size", "2", "4", {{"attention_mask_type", "block_causal"}}},
        {"window_left", "-1", "3", {}},
        {"window_right", "-1", "3", {}},
        {"softmax_scale", "0", "0.25", {}},
        {"attention_backend", "auto", "unfused", {}},
        {"attention_dropout", "0.1", "0.2", {}},
        {"hidden_dropout", "0.1", "0", {}},
        {"batch_first", "0", "1", {}},
        {"params_dtype", "f32", "f64", {}},
        {"grad_dtype", "default", "f32", {}},
        {"init_method_std", "0.02", "0.03", {}},
        {"output_init_std", "0", "0.01", {}},
        {"sequence_parallel", "0", "1", {}},
        {"recompute_granularity", "none", "selective", {}},
        {"recompute_method", "uniform", "block", full},
        {"recompute_num_layers", "1", "2", full},
        {"recompute_modules", "layernorm", "mlp", {{"recompute_granularity", "selective"}}},
        {"distribute_saved_activations", "0", "1", full},
        {"cpu_offloading", "1", "0", {}},
        {"cpu_offloading_num_layers", "1", "2", {{"cpu_offloading", "1"}}},
        {"memory_budget", "0", "1048576", {}},
        {"memory_budget_includes_parameters", "0", "1", {{"memory_budget", "1048576"}}},
        {"total_num_layers", "0", "12", {}}};
    std::set<std::string> keys = {"tensor_model_parallel_size"};  // which the context's group decides
    for (const Setting &s : settings) keys.insert(s.key);
    CHECK(keys.size() == static_cast<size_t>(mdlm_config_key_count()));
    on_groups([&](Member &m) -> std::string {
        for (const Setting &s : settings) {
            mdlm_block *block = nullptr;
            mdlm_config config = m.rig.config;
            for (const auto &[key, value] : s.all) EXPECT_OK(mdlm_config_set(&config, key, value));
            char texts[2][32];
            for (const int there : {m.is_odd() ? 0 : 1, m.is_odd() ? 1 : 0}) {  // its own last
                EXPECT_OK(mdlm_config_set(&config, s.key, there != 0 ? s.there : s.here));
                EXPECT_OK(mdlm_config_get(&config, s.key, texts[there], sizeof texts[there], nullptr));
            }
            if (std::string(s.key) == "cpu_offloading" && config.cpu_offloading != 0)
                config.cpu_offloading_num_layers = 1;
            EXPECT_OK(mdlm_block_create(m.rig.context, &config, &block));
            const Act act = [&](Rig &rig) { return mdlm_block_reserve(block, &rig.shape, nullptr); };
            std::string wrong = m.differ(act, act, MDLM_ERROR_CONFIG, s.key, texts[0], texts[1]);
            mdlm_memory memory = MDLM_MEMORY_INIT;
            if (wrong.empty())
                wrong = wrong_with(mdlm_block_memory(block, &memory), MDLM_ERROR_STATE, "not reserved", s.key);
            mdlm_block_destroy(block);
            EXPECT_GOOD(wrong);
        }
        return "";
    });
}

TEST_CASE("ranks with other frozen parameters, plans and devices") {
    on_groups([](Member &m) -> std::string {
        mdlm_tape_destroy(std::exchange(m.rig.tape, nullptr));
        for (const int64_t index : {0, 5, 13}) {
            mdlm_block *block = nullptr;
            mdlm_param_desc desc = MDLM_PARAM_DESC_INIT;
            EXPECT_OK(mdlm_block_create(m.rig.context, &m.rig.config, &block));
            EXPECT_OK(mdlm_param_info(block, index, &desc));
            const std::string name = std::string("requires_grad of ") + desc.name;
            if (m.is_odd()) EXPECT_OK(mdlm_param_set_requires_grad(block, index, 0));
            const Act act = [&](Rig &rig) { return mdlm_block_reserve(block, &rig.shape, nullptr); };
            const std::string wrong = m.differ(act, act, MDLM_ERROR_CONFIG, name, "1", "0");
            if (m.is_odd()) EXPECT_OK(mdlm_param_set_requires_grad(block, index, 1));
            EXPECT_OK(mdlm_block_reserve(block, &m.rig.shape, nullptr));
            mdlm_block_destroy(block);
            EXPECT_GOOD(wrong);
        }
        for (const int64_t layer : {0, 1}) {
            EXPECT_OK(mdlm_block_plan(m.rig.block, &m.rig.shape, &m.rig.plan));
            if (m.is_odd()) EXPECT_OK(mdlm_plan_set(m.rig.plan, layer, "pre_mlp_layernorm", MDLM_STORAGE_REPLAY));
            EXPECT_GOOD(m.differ(reserve, reserve, MDLM_ERROR_CONFIG,
                                 "plan of layer " + std::to_string(layer) + ": pre_mlp_layernorm", "keep", "replay"));
            mdlm_plan_destroy(std::exchange(m.rig.plan, nullptr));
        }
        EXPECT_OK(mdlm_block_plan(m.rig.block, &m.rig.shape, &m.rig.plan));
        if (m.is_odd()) EXPECT_OK(mdlm_plan_set_unit(m.rig.plan, 0, 2));
        EXPECT_GOOD(m.differ(reserve, reserve, MDLM_ERROR_CONFIG, "plan of layer 0: its unit", "1 from layer 0",
                             "2 from layer 0"));
        mdlm_plan_destroy(std::exchange(m.rig.plan, nullptr));
        EXPECT_GOOD(m.right());
        m.rig.close();
        if (m.is_odd()) m.rig.desc.device = MDLM_DEVICE_CPU;
        EXPECT_GOOD(m.differ([](Rig &rig) { return rig.open(); }, [](Rig &rig) { return rig.open(); },
                             MDLM_ERROR_CONFIG, "desc.device", "1", "0"));
        m.rig.close();
        m.rig.desc.device = MDLM_DEVICE_REFERENCE;
        EXPECT_OK(m.rig.open());
        return "";
    });
}

TEST_CASE("ranks may have other numbers of threads, and other matrix products") {
    on_groups([](Member &m) -> std::string {
        m.rig.close();
        m.rig.desc.device = MDLM_DEVICE_CPU;
        m.rig.desc.matmul = MDLM_MATMUL_OWN;
        EXPECT_OK(m.rig.open());
        EXPECT_OK(m.rig.step());
        m.good = m.rig.digest();
        m.rig.close();
        if (m.is_odd()) m.rig.desc.num_threads = 3;
        EXPECT_OK(m.rig.open());
        return "";
    });
}

// SPDX-License-Identifier: Apache-2.0
// Settings through the C ABI: by key.
#include <cstring>
#include <string>
#include <utility>
#include <vector>

#include <doctest/doctest.h>

#include "config_support.hpp"
#include "mdlm/mdlm.h"

TEST_CASE("config: every key round-trips") {
    REQUIRE(mdlm_config_key_count() == static_cast<int32_t>(std::size(samples)));
    CHECK(mdlm_config_key(-1) == nullptr);
    CHECK(mdlm_config_key(mdlm_config_key_count()) == nullptr);
    mdlm_config all = MDLM_CONFIG_INIT, copy = MDLM_CONFIG_INIT;
    for (int32_t i = 0; i < mdlm_config_key_count(); ++i) {
        const Sample &s = samples[i];
        REQUIRE(std::string(mdlm_config_key(i)) == s.key);
        INFO(s.key);
        for (const char *value : {s.two, s.one}) {
            mdlm_config c = MDLM_CONFIG_INIT;
            const std::string initial = get(c, s.key);
            CHECK(initial != value);
            REQUIRE(mdlm_config_set(&c, s.key, value) == MDLM_OK);
            CHECK(get(c, s.key) == value);
            REQUIRE(mdlm_config_set(&c, s.key, initial.c_str()) == MDLM_OK);  // the default, even where it is "not set"
            const mdlm_config fresh = MDLM_CONFIG_INIT;
            for (int32_t k = 0; k < mdlm_config_key_count(); ++k)
                CHECK(get(c, mdlm_config_key(k)) == get(fresh, mdlm_config_key(k)));
            REQUIRE(mdlm_config_set(&all, s.key, value) == MDLM_OK);
        }
    }
    for (const Sample &s : samples) {
        CHECK(get(all, s.key) == s.one);  // no two keys share a field
        REQUIRE(mdlm_config_set(&copy, s.key, get(all, s.key).c_str()) == MDLM_OK);
    }
    for (const Sample &s : samples) CHECK(get(copy, s.key) == s.one);
}

TEST_CASE("config: init is the INIT macro, and defaults are valid once the sizes are set") {
    mdlm_config c;
    std::memset(&c, 0x5a, sizeof c);
    REQUIRE(mdlm_config_init(&c, sizeof c) == MDLM_OK);
    const mdlm_config macro = MDLM_CONFIG_INIT;
    CHECK(c.struct_size == sizeof c);
    for (const Sample &s : samples) CHECK(get(c, s.key) == get(macro, s.key));
    CHECK(reasons(c) == "num_layers is not set: expected an integer in 1 .. 4096; hidden_size is not set: expected an "
                        "integer in 1 .. 16777216; "
                        "num_attention_heads is not set: expected an integer in 1 .. 65536");
    CHECK(reasons(small()) == "");
}

TEST_CASE("config: values as people write them") {
    mdlm_config c = small();
    const auto sets = [&](const char *key, const char *value, const char *seen) {
        INFO(key, " = ", value);
        REQUIRE(mdlm_config_set(&c, key, value) == MDLM_OK);
        CHECK(get(c, key) == seen);
    };
    sets("normalization", "rmsnorm", "RMSNorm");
    sets("normalization", "LAYERNORM", "LayerNorm");
    sets("qk_layernorm", "TRUE", "true");
    sets("qk_layernorm", "0", "false");
    sets("layernorm_epsilon", "1e-05", "1e-05");
    sets("rotary_base", "10000.0", "10000");
    sets("position_embedding_type", "learned_absolute", "none");
    sets("attention_backend", "flash", "fused");
    sets("attention_backend", "local", "unfused");
    for (const char *name : {"bf16", "bfloat16", "BF16"}) sets("params_dtype", name, "bf16");
    for (const char *name : {"f16", "fp16", "float16", "half"}) sets("params_dtype", name, "f16");
    for (const char *name : {"f32", "fp32", "float32", "float"}) sets("params_dtype", name, "f32");
    for (const char *name : {"f64", "fp64", "float64", "double"}) sets("params_dtype", name, "f64");
    sets("grad_dtype", "default", "default");
    sets("recompute_modules", "qkv,core_attn", "core_attn,qkv");
    sets("recompute_modules", "MLP", "mlp");
    sets("recompute_modules", "default", "default");
    CHECK(c.recompute_modules == 0);
}

TEST_CASE("config: values that cannot be read, with the exact line") {
    CHECK(refused("num_layers", "four") == "num_layers = \"four\": expected an integer in 1 .. 4096");
    for (const char *text : {"", " 4", "4 ", "+4", "4.0", "0x4", "4097", "-1", "99999999999999999999"})
        refused("num_layers", text);
    CHECK(refused("mask_block_size", "2147483648") == "mask_block_size = \"2147483648\": expected an integer >= 0");
    CHECK(refused("hidden_dropout", "1") == "hidden_dropout = \"1\": expected a number in [0, 1)");
    for (const char *text : {"nan", "-nan", "inf", "-0.1", "0,5", "0.5f", "1e999", ""}) refused("hidden_dropout", text);
    CHECK(refused("layernorm_epsilon", "0") == "layernorm_epsilon = \"0\": expected a number > 0");
    CHECK(refused("rotary_base", "inf") == "rotary_base = \"inf\": expected a number > 1");
    CHECK(refused("rotary_percent", "0") == "rotary_percent = \"0\": expected a number in (0, 1]");
    CHECK(refused("softmax_scale", "-1") == "softmax_scale = \"-1\": expected a number >= 0");
    CHECK(refused("qk_layernorm", "yes") == "qk_layernorm = \"yes\": expected true or false");
    CHECK(refused("activation_func", "relu") ==
          "activation_func = \"relu\": expected one of gelu, gelu_tanh, squared_relu, swiglu, geglu");
    CHECK(refused("params_dtype", "default") == "params_dtype = \"default\": expected one of f32, bf16, f16, f64");
    CHECK(refused("attention_mask_type", "padding") ==
          "attention_mask_type = \"padding\": expected one of no_mask, causal, block_causal");
    CHECK(refused("recompute_modules", "core_attn,moe") ==
          "recompute_modules: no module is called \"moe\": expected default, or some joined by commas or blanks of "
          "core_attn, qkv, "
          "qk_norm_rope, layernorm, mlp_act, mlp");
    for (const char *text : {"", ",", " ", "qkv;mlp", "qkv, moe", "default,qkv", "1"})
        refused("recompute_modules", text);

    mdlm_config c = small();
    CHECK(mdlm_config_set(&c, "vocab_size", "1") == MDLM_ERROR_NOT_FOUND);
    CHECK(std::string(mdlm_last_error()) == "no setting is called \"vocab_size\"");
    char buf[8];
    CHECK(mdlm_config_get(&c, "Num_layers", buf, sizeof buf, nullptr) == MDLM_ERROR_NOT_FOUND);
    c.activation_func = 9;
    CHECK(mdlm_config_get(&c, "activation_func", buf, sizeof buf, nullptr) == MDLM_ERROR_CONFIG);
}

TEST_CASE("config: text out is cut at cap and always ended") {
    const mdlm_config c = small();
    size_t length = 0;
    CHECK(mdlm_config_get(&c, "normalization", nullptr, 0, &length) == MDLM_OK);
    CHECK(length == 9);
    char buf[6] = {'x', 'x', 'x', 'x', 'x', 'x'};
    CHECK(mdlm_config_get(&c, "normalization", buf, 5, nullptr) == MDLM_OK);
    CHECK(std::string(buf) == "Laye");
    CHECK(buf[5] == 'x');
    CHECK(mdlm_config_get(&c, "normalization", buf, 1, nullptr) == MDLM_OK);
    CHECK(buf[0] == 0);
    CHECK(mdlm_config_get(&c, "normalization", nullptr, 4, nullptr) == MDLM_ERROR_ARGUMENT);
}

TEST_CASE("config: a file of keys and values as the golden cases have them") {
    constexpr Sample file[] = {
        {"num_layers", "2", "2"},
        {"hidden_size", "40", "40"},
        {"num_attention_heads", "6", "6"},
        {"num_query_groups", "2", "2"},
        {"kv_channels", "8", "8"},
        {"ffn_hidden_size", "72", "72"},
        {"normalization", "rmsnorm", "RMSNorm"},
        {"layernorm_epsilon", "1e-05", "1e-05"},
        {"layernorm_zero_centered_gamma", "false", "false"},
        {"activation_func", "swiglu", "swiglu"},
        {"add_bias_linear", "false", "false"},
        {"add_qkv_bias", "true", "true"},
        {"qk_layernorm", "false", "false"},
        {"position_embedding_type", "rope", "rope"},
        {"rotary_base", "500000.0", "5e+05"},
        {"rotary_percent", "1.0", "1"},
        {"rotary_interleaved", "false", "false"},
        {"attention_mask_type", "causal", "causal"},
        {"window_left", "-1", "-1"},
        {"window_right", "-1", "-1"},
        {"mask_block_size", "0", "0"},
        {"softmax_scale", "0.35355339059327373", "0.35355339059327373"},
        {"final_layernorm", "true", "true"},
    };
    mdlm_config c = MDLM_CONFIG_INIT;
    for (const Sample &line : file) {
        INFO(line.key);
        REQUIRE(mdlm_config_set(&c, line.key, line.one) == MDLM_OK);
        CHECK(get(c, line.key) == line.two);
    }
    CHECK(reasons(c) == "");
    CHECK(c.softmax_scale == 0.35355339059327373);
}

TEST_CASE("config: bytes as text") {
    mdlm_config c = MDLM_CONFIG_INIT;
    for (const auto &[text, bytes] : {std::pair<const char *, int64_t>{"0", 0},
                                      {"1048577", 1048577},
                                      {"40GiB", int64_t{40} << 30},
                                      {"40 GB", 40000000000},
                                      {"1.5KiB", 1536},
                                      {"0.1 MB", 100000},
                                      {"7B", 7},
                                      {"2tib", int64_t{2} << 40},
                                      {"8388607TiB", int64_t{8388607} << 40},
                                      {"1.000000001GB", 1000000001},
                                      {"9223372036854775807", INT64_MAX}}) {
        const std::string given = text;
        INFO(given);
        REQUIRE(mdlm_config_set(&c, "memory_budget", text) == MDLM_OK);
        CHECK(c.memory_budget == bytes);
    }
    for (const char *text : {"", "-1", "GiB", "4 0", "1.5", "1.GB", ".5GB", "1.0000000001GB", "8388608TiB",
                             "9223372036854775808", "40GiBs", "1e9", "4  GB"}) {
        INFO(text);
        CHECK(mdlm_config_set(&c, "memory_budget", text) == MDLM_ERROR_CONFIG);
        CHECK(std::string(mdlm_last_error()) ==
              "memory_budget = \"" + std::string(text) +
                  "\": expected bytes >= 0, a number alone or with KB, KiB, MB, MiB, GB, GiB, TB or TiB");
    }
    CHECK(c.memory_budget == INT64_MAX);
    const char *words[] = {"--memory-budget", "40GiB", "--memory-budget-includes-parameters"};
    int used = 0;
    REQUIRE(mdlm_config_parse_flags(&c, 3, words, &used) == MDLM_OK);
    CHECK(used == 3);
    CHECK(c.memory_budget == int64_t{40} << 30);
    CHECK(c.memory_budget_includes_parameters == 1);
}

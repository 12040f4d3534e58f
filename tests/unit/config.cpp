// SPDX-License-Identifier: Apache-2.0
// Settings through the C ABI: by key and by flag.
#include <cstring>
#include <string>
#include <utility>
#include <vector>

#include <doctest/doctest.h>

#include "config_support.hpp"
#include "mdlm/mdlm.h"

namespace {

std::string get(const mdlm_config &c, const char *key) {
    char buf[256];
    size_t length = 0;
    REQUIRE(mdlm_config_get(&c, key, buf, sizeof buf, &length) == MDLM_OK);
    CHECK(length == std::strlen(buf));
    return buf;
}

std::string refused(const char *key, const char *value) {
    mdlm_config c = small();
    const mdlm_config before = c;
    CHECK(mdlm_config_set(&c, key, value) == MDLM_ERROR_CONFIG);
    CHECK(std::memcmp(&c, &before, sizeof c) == 0);
    return mdlm_last_error();
}

struct Parsed {
    mdlm_status status;
    int used;
    mdlm_config config;
};
Parsed flags(std::vector<const char *> words) {
    Parsed p{MDLM_OK, -7, small()};
    words.push_back(nullptr);
    p.status = mdlm_config_parse_flags(&p.config, static_cast<int>(words.size()) - 1, words.data(), &p.used);
    return p;
}

// Two valid values of every key, none of them the default.
struct Sample {
    const char *key, *one, *two;
};
constexpr Sample samples[] = {
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

}  // namespace

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

TEST_CASE("flags: Megatron's spellings") {
    const Parsed p = flags({"--num-layers",
                            "24",
                            "--hidden-size=1024",
                            "--num-attention-heads",
                            "16",
                            "--group-query-attention",
                            "--num-query-groups",
                            "4",
                            "--kv-channels",
                            "64",
                            "--normalization",
                            "RMSNorm",
                            "--norm-epsilon",
                            "1e-6",
                            "--apply-layernorm-1p",
                            "--disable-bias-linear",
                            "--add-qkv-bias",
                            "--swiglu",
                            "--qk-layernorm",
                            "--use-rope-scaling",
                            "--rotary-interleaved",
                            "--rotary-seq-len-interpolation-factor",
                            "2",
                            "--window-left",
                            "-1",
                            "--bf16",
                            "--accumulate-allreduce-grads-in-fp32",
                            "--tensor-model-parallel-size",
                            "2",
                            "--sequence-parallel",
                            "--recompute-activations",
                            "--recompute-modules",
                            "core_attn",
                            "mlp",
                            "--use-flash-attn",
                            "--attention-dropout",
                            "0.1",
                            "--cpu-offloading=true",
                            "--cpu-offloading-num-layers",
                            "3"});
    REQUIRE(p.status == MDLM_OK);
    CHECK(p.used == 40);
    CHECK(p.config.num_layers == 24);
    CHECK(p.config.hidden_size == 1024);
    CHECK(p.config.num_attention_heads == 16);
    CHECK(p.config.num_query_groups == 4);
    CHECK(p.config.normalization == MDLM_NORM_RMSNORM);
    CHECK(p.config.layernorm_epsilon == 1e-6);
    CHECK(p.config.layernorm_zero_centered_gamma == 1);
    CHECK(p.config.add_bias_linear == 0);
    CHECK(p.config.add_qkv_bias == 1);
    CHECK(p.config.activation_func == MDLM_ACT_SWIGLU);
    CHECK(p.config.qk_layernorm == 1);
    CHECK(p.config.use_rope_scaling == 1);
    CHECK(p.config.rotary_interleaved == 1);
    CHECK(p.config.seq_len_interpolation_factor == 2);
    CHECK(p.config.window_left == -1);
    CHECK(p.config.params_dtype == MDLM_DTYPE_BF16);
    CHECK(p.config.grad_dtype == MDLM_DTYPE_F32);
    CHECK(p.config.sequence_parallel == 1);
    CHECK(p.config.recompute_granularity == MDLM_RECOMPUTE_GRANULARITY_SELECTIVE);
    CHECK(p.config.recompute_modules == (MDLM_RECOMPUTE_MODULE_CORE_ATTN | MDLM_RECOMPUTE_MODULE_MLP));
    CHECK(p.config.attention_backend == MDLM_ATTENTION_FUSED);
    CHECK(p.config.cpu_offloading == 1);
    CHECK(p.config.cpu_offloading_num_layers == 3);
    CHECK(reasons(p.config) == "");

    CHECK(flags({"--squared-relu"}).config.activation_func == MDLM_ACT_SQUARED_RELU);
    CHECK(flags({"--openai-gelu"}).config.activation_func == MDLM_ACT_GELU_TANH);
    CHECK(flags({"--fp16"}).config.params_dtype == MDLM_DTYPE_F16);
    CHECK(flags({"--swiglu=true"}).config.activation_func == MDLM_ACT_SWIGLU);
    CHECK(flags({"--final-layernorm=false"}).config.final_layernorm == 0);
    CHECK(flags({"--no-final-layernorm"}).config.final_layernorm == 0);
    CHECK(flags({"--distribute-saved-activations"}).config.distribute_saved_activations == 1);
    CHECK(flags({"--group-query-attention"}).config.num_query_groups == 1);
    CHECK(flags({"--num-query-groups", "4", "--group-query-attention"}).config.num_query_groups == 4);
}

TEST_CASE("flags: every key is one") {
    for (const Sample &s : samples) {
        std::string flag = std::string("--") + s.key + "=" + s.one;
        for (size_t i = 2; flag[i] != '='; ++i)
            if (flag[i] == '_') flag[i] = '-';
        INFO(flag);
        const Parsed p = flags({flag.c_str()});
        CHECK(p.status == MDLM_OK);
        CHECK(p.used == 1);
        CHECK(get(p.config, s.key) == s.one);
    }
}

TEST_CASE("flags: stops at what is not ours, and a bad value changes nothing") {
    CHECK(flags({}).used == 0);
    CHECK(flags({"--seq-length", "2048"}).used == 0);
    CHECK(flags({"--swiglu", "--untie-embeddings-and-output-weights", "--bf16"}).used == 1);
    for (const char *word : {"--no-position-embedding", "--no-num-layers", "--num_layers", "-num-layers", "num-layers",
                             "--", "", "--no-", "--no-qk-layernorm=true"})
        CHECK(flags({word, "3"}).used == 0);

    const auto bad = [](std::vector<const char *> words, const char *text) {
        const Parsed p = flags(std::move(words));
        const mdlm_config before = small();
        CHECK(p.status == MDLM_ERROR_CONFIG);
        CHECK(p.used == -7);
        CHECK(std::memcmp(&p.config, &before, sizeof before) == 0);
        CHECK(std::string(mdlm_last_error()) == text);
    };
    bad({"--swiglu", "--num-layers", "x"}, "num_layers = \"x\": expected an integer in 1 .. 4096");
    bad({"--swiglu", "--num-layers"}, "--num-layers: expected a value, seen the end");
    bad({"--num-layers", "--swiglu"}, "num_layers = \"--swiglu\": expected an integer in 1 .. 4096");
    bad({"--swiglu=maybe"}, "--swiglu = \"maybe\": expected true or false");
    bad({"--qk-layernorm=maybe"}, "--qk-layernorm = \"maybe\": expected true or false");

    mdlm_config c = small();
    int used = 0;
    const char *none[] = {nullptr};
    CHECK(mdlm_config_parse_flags(&c, -1, none, &used) == MDLM_ERROR_ARGUMENT);
    CHECK(mdlm_config_parse_flags(&c, 0, nullptr, &used) == MDLM_OK);
    CHECK(mdlm_config_parse_flags(&c, 1, nullptr, &used) == MDLM_ERROR_ARGUMENT);
    CHECK(mdlm_config_parse_flags(&c, 0, none, nullptr) == MDLM_ERROR_ARGUMENT);
    CHECK(mdlm_config_parse_flags(&c, 5, none, &used) == MDLM_OK);  // a NULL word ends the list
    CHECK(used == 0);
}

TEST_CASE("flags: booleans have a value behind them, or none") {
    for (const auto &[word, value] :
         {std::pair<const char *, int>{"0", 0}, {"false", 0}, {"False", 0}, {"1", 1}, {"true", 1}, {"TRUE", 1}}) {
        INFO(word);
        for (int32_t i = 0; i < mdlm_config_key_count(); ++i) {
            const std::string key = mdlm_config_key(i), initial = get(small(), key.c_str());
            if (initial != "true" && initial != "false") continue;
            INFO(key);
            std::string flag = "--" + key;
            for (char &c : flag) c = c == '_' ? '-' : c;
            const std::string joined = flag + "=" + word;
            for (const Parsed &p : {flags({flag.c_str(), word, "--bf16"}), flags({joined.c_str(), "--bf16"})}) {
                REQUIRE(p.status == MDLM_OK);
                CHECK(get(p.config, key.c_str()) == (value != 0 ? "true" : "false"));
                CHECK(p.config.params_dtype == MDLM_DTYPE_BF16);  // the word behind was read, too
            }
        }
        // Of those that only set something, false is as good as not there.
        CHECK(flags({"--swiglu", word}).used == 2);
        CHECK(flags({"--swiglu", word}).config.activation_func == (value != 0 ? MDLM_ACT_SWIGLU : MDLM_ACT_GELU));
        CHECK(flags({"--disable-bias-linear", word}).config.add_bias_linear == 1 - value);
        CHECK(flags({"--group-query-attention", word}).config.num_query_groups == value);
        CHECK(flags({"--no-final-layernorm", word}).used == 1);
    }
    CHECK(flags({"--final-layernorm", "2"}).used == 1);  // somebody else's word
    CHECK(flags({"--final-layernorm", "2"}).config.final_layernorm == 1);
}

TEST_CASE("flags: of two that exclude each other neither wins") {
    for (const auto &[one, other] :
         {std::pair<const char *, const char *>{"--bf16", "--fp16"}, {"--swiglu", "--squared-relu"}}) {
        const std::string text = std::string(one) + " and " + other + ": expected one of them, seen both";
        // Next to each other, and with a word between that the caller takes: the first call sees it.
        for (const auto &words : {std::vector<const char *>{one, other},
                                  {other, one},
                                  {one, "--lr", "1e-4", other},
                                  {other, "--lr", "1e-4", "--qk-layernorm", one, "1"}}) {
            const Parsed p = flags(words);
            CHECK(p.status == MDLM_ERROR_CONFIG);
            CHECK(p.used == -7);
            CHECK(std::string(mdlm_last_error()) == text);
            CHECK(p.config.params_dtype == MDLM_DTYPE_F32);
        }
        CHECK(flags({one, other, "0"}).status == MDLM_OK);
        CHECK(flags({one, one}).status == MDLM_OK);
    }
    // A later call says something else on purpose: over a preset of the caller's.
    mdlm_config c = flags({"--bf16"}).config;
    const char *const words[] = {"--fp16"};
    int used = 0;
    CHECK(mdlm_config_parse_flags(&c, 1, words, &used) == MDLM_OK);
    CHECK(c.params_dtype == MDLM_DTYPE_F16);
}

TEST_CASE("flags: lists of modules with blanks or commas, and no unknown one") {
    constexpr uint32_t both = MDLM_RECOMPUTE_MODULE_CORE_ATTN | MDLM_RECOMPUTE_MODULE_MLP;
    for (const auto &words : {std::vector<const char *>{"core_attn", "mlp"},
                              {"core_attn,mlp"},
                              {"core_attn, mlp"},
                              {"core_attn mlp"},
                              {"core_attn,", "mlp"},
                              {"mlp", "core_attn", "mlp"}}) {
        std::vector<const char *> all = {"--recompute-modules"};
        all.insert(all.end(), words.begin(), words.end());
        all.push_back("--bf16");
        const Parsed p = flags(all);
        CHECK(p.status == MDLM_OK);
        CHECK(p.used == static_cast<int>(all.size()));
        CHECK(p.config.recompute_modules == both);
    }
    const char *known =
        "expected default, or some joined by commas or blanks of core_attn, qkv, qk_norm_rope, layernorm, mlp_act, mlp";
    for (const auto &words :
         {std::vector<const char *>{"--recompute-modules", "mlp", "moe", "mla_up_proj", "layernorm"},
          {"--recompute-modules", "mlp,moe"},
          {"--recompute-modules=moe"}}) {
        const Parsed p = flags(words);
        CHECK(p.status == MDLM_ERROR_CONFIG);
        CHECK(p.config.recompute_modules == 0);
        CHECK(std::string(mdlm_last_error()) ==
              std::string("recompute_modules: no module is called \"moe\": ") + known);
    }
    CHECK(flags({"--recompute-modules=mlp", "moe"}).used == 1);  // with "=" the list is that word
    CHECK(refused("recompute_modules", ",") == std::string("recompute_modules = \",\": ") + known);
}

TEST_CASE("flags: windows, masks and offloading as Megatron has them") {
    for (const char *text : {"127,0", "(127,0)", "(127, 0)", "127, 0"}) {
        INFO(text);
        const Parsed p = flags({"--window-size", text, "--bf16"});
        REQUIRE(p.status == MDLM_OK);
        CHECK(p.used == 3);
        CHECK(p.config.window_left == 127);
        CHECK(p.config.window_right == 0);
    }
    CHECK(flags({"--window-size=-1,3"}).config.window_left == -1);
    CHECK(flags({"--window-size", "-1,-1"}).config.window_right == -1);
    for (const char *text :
         {"", "127", "127,", ",0", "127,0,1", "127,-2", "-2,0", "(127,0", "a,b", "1;2", "99999999999999999999,0"}) {
        const Parsed p = flags({"--window-size", text});
        CHECK(p.status == MDLM_ERROR_CONFIG);
        CHECK(std::string(mdlm_last_error()) ==
              "--window-size = \"" + std::string(text) + "\": expected two integers >= -1, as 127,0 or (127,0)");
        CHECK(p.config.window_left == -1);
    }
    const Parsed causal = flags({"--attention-mask-type", "no_mask", "--attention-mask-type", "causal_bottom_right"});
    REQUIRE(causal.status == MDLM_OK);
    CHECK(causal.config.attention_mask_type == MDLM_MASK_CAUSAL);
    CHECK(get(causal.config, "attention_mask_type") == "causal");

    const Parsed offload = flags({"--cpu-offloading-num-layers", "2"});
    REQUIRE(offload.status == MDLM_OK);
    CHECK(offload.config.cpu_offloading == 1);
    CHECK(offload.config.cpu_offloading_num_layers == 2);
    CHECK(reasons(offload.config) == "");
    CHECK(flags({"--cpu-offloading-num-layers", "0"}).config.cpu_offloading == 0);
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

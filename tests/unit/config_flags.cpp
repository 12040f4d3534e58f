// SPDX-License-Identifier: Apache-2.0
// Settings through the C ABI: by flag, as Megatron spells them.
#include <cstring>
#include <string>
#include <utility>
#include <vector>

#include <doctest/doctest.h>

#include "config_support.hpp"
#include "mdlm/mdlm.h"

namespace {

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

}  // namespace

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

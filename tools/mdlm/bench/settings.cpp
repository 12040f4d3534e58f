// SPDX-License-Identifier: Apache-2.0
#include "settings.hpp"

#include "../../text.hpp"

namespace mdlm::tools::bench {
namespace {

void set(mdlm_config *config, const char *key, const std::string &value) {
    if (mdlm_config_set(config, key, value.c_str()) != MDLM_OK) bad("mdlm bench: %s", mdlm_last_error());
}

std::string get(const mdlm_config &config, const char *key) {
    char text[256];
    if (mdlm_config_get(&config, key, text, sizeof text, nullptr) != MDLM_OK) bad("mdlm bench: %s", mdlm_last_error());
    return text;
}

mdlm_config without_recompute(mdlm_config config) {
    config.recompute_granularity = MDLM_RECOMPUTE_GRANULARITY_NONE;
    config.recompute_method = MDLM_RECOMPUTE_METHOD_NONE;
    config.recompute_num_layers = 0;
    config.recompute_modules = 0;
    config.distribute_saved_activations = 0;
    config.memory_budget = 0, config.memory_budget_includes_parameters = 0;
    return config;
}

// Every count up to four layers; beyond, those that show the trade.
std::vector<int64_t> unit_sizes(int64_t layers) {
    std::vector<int64_t> sizes;
    for (int64_t n = 1; n < layers; n = layers <= 4 ? n + 1 : 2 * n) sizes.push_back(n);
    sizes.push_back(layers);
    return sizes;
}

std::vector<int64_t> replaying_layers(int64_t layers) {  // all of them are uniform with 1
    std::vector<int64_t> counts;
    for (int64_t i = 1; i < 4; ++i) {
        const int64_t n = layers <= 4 ? i : layers * i / 4;
        if (n < layers) counts.push_back(n);
    }
    return counts;
}

// The same settings for one rank, once each.
void add_one_rank(std::vector<Setting> &all) {
    const size_t grouped = all.size();
    for (size_t i = 0; i < grouped; ++i) {
        Setting one = all[i];
        one.config.tensor_model_parallel_size = 1, one.config.sequence_parallel = 0,
        one.config.distribute_saved_activations = 0;
        one.one_rank = true;
        if (all[i].config.distribute_saved_activations != 0) one.name = recompute_name(one.config);
        one.name = "one rank: " + one.name;
        size_t at = grouped;
        while (at < all.size() && all[at].name != one.name) ++at;
        if (at == all.size()) all.push_back(one);
        all[i].against = static_cast<std::ptrdiff_t>(at);
    }
}

std::vector<Setting> plain_settings_of(const Options &o) {
    if (!o.budgets.empty()) return budget_settings(o);
    std::vector<Setting> all;
    if (o.sweep) {
        for (const mdlm_config &c : recompute_settings(o.config))
            all.push_back({recompute_name(c), c, o.seq_length, o.micro_batch_size});
        return all;
    }
    if (o.curve != Curve::none) {
        for (const int64_t point : o.points) {
            Setting s{textf("%s %lld", name_of(o.curve), static_cast<long long>(point)), o.config, o.seq_length,
                      o.micro_batch_size};
            if (o.curve == Curve::seq_length)
                s.seq_length = point, s.micro_batch_size = o.seq_length * o.micro_batch_size / point;
            else s.micro_batch_size = point;
            all.push_back(s);
        }
        return all;
    }
    const bool replays =
        o.config.recompute_granularity != MDLM_RECOMPUTE_GRANULARITY_NONE || o.config.memory_budget != 0;
    if (replays && o.baseline) all.push_back({"none", without_recompute(o.config), o.seq_length, o.micro_batch_size});
    all.push_back({recompute_name(o.config), o.config, o.seq_length, o.micro_batch_size});
    return all;
}

}  // namespace

bool recomputes(const mdlm_config &c) {
    return c.recompute_granularity != MDLM_RECOMPUTE_GRANULARITY_NONE ||
           c.recompute_method != MDLM_RECOMPUTE_METHOD_NONE || c.recompute_num_layers != 0 ||
           c.recompute_modules != 0 || c.distribute_saved_activations != 0;
}

std::vector<mdlm_config> recompute_settings(const mdlm_config &config) {
    const mdlm_config plain = without_recompute(config);
    std::vector<mdlm_config> all = {plain};
    // Else nothing to replay there.
    const bool rotates = plain.qk_layernorm != 0 || plain.position_embedding_type == MDLM_POSITION_ROPE;
    for (const std::string modules :
         {"mlp_act", "layernorm", "qk_norm_rope", "layernorm,mlp_act", "qk_norm_rope,layernorm,mlp_act", "core_attn",
          "qkv", "qkv,core_attn", "mlp", "layernorm,mlp", "qkv,core_attn,layernorm,mlp"}) {
        if (!rotates && modules.find("qk_norm_rope") != std::string::npos) continue;
        mdlm_config c = plain;
        c.recompute_granularity = MDLM_RECOMPUTE_GRANULARITY_SELECTIVE;
        set(&c, "recompute_modules", modules);
        all.push_back(c);
    }
    for (const auto &[method, counts] : {std::pair{MDLM_RECOMPUTE_METHOD_BLOCK, replaying_layers(plain.num_layers)},
                                         std::pair{MDLM_RECOMPUTE_METHOD_UNIFORM, unit_sizes(plain.num_layers)}})
        for (const int64_t n : counts) {
            mdlm_config c = plain;
            c.recompute_granularity = MDLM_RECOMPUTE_GRANULARITY_FULL;
            c.recompute_method = method;
            c.recompute_num_layers = n;
            all.push_back(c);
            if (c.tensor_model_parallel_size == 1 || c.sequence_parallel != 0) continue;
            c.distribute_saved_activations = 1;
            all.push_back(c);
        }
    return all;
}

std::string recompute_name(const mdlm_config &c) {
    if (c.memory_budget != 0) return "memory_budget " + get(c, "memory_budget");
    std::string name = get(c, "recompute_granularity");
    if (c.recompute_granularity == MDLM_RECOMPUTE_GRANULARITY_SELECTIVE)
        name += " " + (c.recompute_modules != 0 ? get(c, "recompute_modules") : "qkv,core_attn");
    if (c.recompute_granularity == MDLM_RECOMPUTE_GRANULARITY_FULL)
        name += textf(" %s %lld", c.recompute_method == MDLM_RECOMPUTE_METHOD_BLOCK ? "block" : "uniform",
                      static_cast<long long>(c.recompute_num_layers != 0 ? c.recompute_num_layers : 1));
    if (c.distribute_saved_activations != 0) name += " distributed";
    return name;
}

std::vector<Setting> settings_of(const Options &o) {
    std::vector<Setting> all = plain_settings_of(o);
    if (o.against_one_rank) add_one_rank(all);
    return all;
}

}  // namespace mdlm::tools::bench

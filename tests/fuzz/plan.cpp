// SPDX-License-Identifier: Apache-2.0
// Plans as JSON. The text's first character says for which block ('0' .. '3'); DIGEST in it stands for that block's
// digest, so that a corpus outlives a change of what is digested.
#include <algorithm>
#include <memory>
#include <nlohmann/json.hpp>

#include "fuzz/target.hpp"

namespace fuzz {
namespace {

using nlohmann::json;
using Plan = std::unique_ptr<mdlm_plan, void (*)(mdlm_plan *)>;

struct Block {
    mdlm_config config = MDLM_CONFIG_INIT;
    mdlm_shape shape = MDLM_SHAPE_INIT;
    std::string digest;
};

std::string json_of(const mdlm_plan *plan) {
    return text_of("mdlm_plan_to_json",
                   [&](char *buf, size_t cap, size_t *out_len) { return mdlm_plan_to_json(plan, buf, cap, out_len); });
}

mdlm_target target() {
    mdlm_target t = MDLM_TARGET_INIT;
    t.num_threads = 1;
    return t;
}

Block make(std::initializer_list<std::pair<const char *, const char *>> settings, int32_t in_flight) {
    Block b;
    for (const auto &[key, value] : settings)
        if (mdlm_config_set(&b.config, key, value) != MDLM_OK) found("%s", mdlm_last_error());
    b.config.num_layers = 3, b.config.hidden_size = 32, b.config.num_attention_heads = 4;
    b.shape.seq_length = 16, b.shape.micro_batch_size = 2, b.shape.in_flight = in_flight;
    mdlm_plan *plan = nullptr;
    const mdlm_target t = target();
    if (mdlm_plan_create(&b.config, &b.shape, &t, &plan) != MDLM_OK) found("%s", mdlm_last_error());
    const Plan kept(plan, mdlm_plan_destroy);
    b.digest = json::parse(json_of(plan)).at("digest");
    return b;
}

const Block &block_of(char c) {
    static const Block blocks[] = {
        make({{"recompute_granularity", "selective"}}, 1),
        make({{"tensor_model_parallel_size", "2"},
              {"recompute_granularity", "full"},
              {"recompute_method", "uniform"},
              {"recompute_num_layers", "2"},
              {"distribute_saved_activations", "true"}},
             2),
        make({{"attention_backend", "unfused"},
              {"attention_dropout", "0.1"},
              {"cpu_offloading", "true"},
              {"cpu_offloading_num_layers", "2"}},
             3),
        make({{"normalization", "RMSNorm"},
              {"activation_func", "swiglu"},
              {"qk_layernorm", "true"},
              {"add_bias_linear", "false"}},
             1),
    };
    return blocks[static_cast<size_t>(c - '0') % std::size(blocks)];
}

// What the text says must be what the plan has; read with another reader than the library's.
void holds(const mdlm_plan *plan, const json &said) {
    if (said.at("format") != "mdlm-plan" || said.at("version") != 1)
        found("format or version: %s", said.dump().substr(0, 200).c_str());
    const char *const names[] = {"keep", "replay", "shard", "host"};
    int64_t item = 0;
    for (const json &layer : said.at("layers")) {
        mdlm_plan_layer info = MDLM_PLAN_LAYER_INIT;
        answered(mdlm_plan_get_layer(plan, item, &info), "mdlm_plan_get_layer", {MDLM_OK});
        if (layer.at("unit_first") != info.unit_first)
            found("layer %lld: its unit begins at %lld", (long long)item, (long long)info.unit_first);
        const json none = json::object();
        for (const auto &[tensor, storage] : (layer.contains("storage") ? layer.at("storage") : none).items()) {
            mdlm_storage s = -1;
            answered(mdlm_plan_get(plan, item, tensor.c_str(), &s), "mdlm_plan_get", {MDLM_OK});
            if (s < 0 || s > 3 || storage != names[s])
                found("layer %lld: %s is %d, not %s", (long long)item, tensor.c_str(), s, storage.dump().c_str());
        }
        ++item;
    }
    mdlm_plan_layer beyond = MDLM_PLAN_LAYER_INIT;
    answered(mdlm_plan_get_layer(plan, item, &beyond), "mdlm_plan_get_layer", {MDLM_ERROR_ARGUMENT});
}

}  // namespace

void plan(std::string_view input) {
    const Block &b = block_of(input.empty() ? '0' : input[0]);
    std::string text(input.substr(std::min<size_t>(1, input.size())));
    for (size_t at = 0; (at = text.find("DIGEST", at)) != std::string::npos;) text.replace(at, 6, b.digest);
    const mdlm_target t = target();
    const auto read = [&](const std::string &from, mdlm_plan **out) {
        return mdlm_plan_from_json(&b.config, &b.shape, &t, from.data(), from.size(), out);
    };
    mdlm_plan *made = nullptr;
    const mdlm_status status =
        answered(read(text, &made), "mdlm_plan_from_json", {MDLM_OK, MDLM_ERROR_FORMAT, MDLM_ERROR_CONFIG});
    if ((status == MDLM_OK) != (made != nullptr))
        found("mdlm_plan_from_json: %s, and a plan or none", mdlm_status_name(status));
    if (made == nullptr) return;
    const Plan plan(made, mdlm_plan_destroy);
    holds(made, json::parse(text));

    const std::string written = json_of(made);
    mdlm_plan *again = nullptr;
    answered(read(written, &again), "mdlm_plan_from_json", {MDLM_OK});
    const Plan second(again, mdlm_plan_destroy);
    if (json_of(again) != written) found("written and read again it is another plan: %s", written.c_str());
    mdlm_memory memory = MDLM_MEMORY_INIT, same = MDLM_MEMORY_INIT;
    answered(mdlm_plan_memory(made, &memory), "mdlm_plan_memory", {MDLM_OK});
    answered(mdlm_plan_memory(again, &same), "mdlm_plan_memory", {MDLM_OK});
    if (memory.peak_bytes != same.peak_bytes || memory.saved_bytes != same.saved_bytes)
        found("read again it needs other bytes");
    text_of("mdlm_plan_print",
            [&](char *buf, size_t cap, size_t *out_len) { return mdlm_plan_print(made, buf, cap, out_len); });
}

}  // namespace fuzz

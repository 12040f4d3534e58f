// SPDX-License-Identifier: Apache-2.0
// Settings from text, one by one.
#include <cstring>

#include "fuzz/target.hpp"

namespace fuzz {
namespace {

std::string value_of(const mdlm_config &config, const char *key) {
    return text_of("mdlm_config_get", [&](char *buf, size_t cap, size_t *out_len) {
        return mdlm_config_get(&config, key, buf, cap, out_len);
    });
}

void set_one(mdlm_config &config, const std::string &key, const std::string &value) {
    const mdlm_config before = config;
    const mdlm_status status = answered(mdlm_config_set(&config, key.c_str(), value.c_str()), "mdlm_config_set",
                                        {MDLM_OK, MDLM_ERROR_NOT_FOUND, MDLM_ERROR_CONFIG});
    if (status != MDLM_OK) {
        if (std::memcmp(&config, &before, sizeof config) != 0)
            found("%s = %s was refused and changed the config", key.c_str(), value.c_str());
        return;
    }
    const std::string text = value_of(config, key.c_str());
    mdlm_config again = before;
    if (mdlm_config_set(&again, key.c_str(), text.c_str()) != MDLM_OK)
        found("%s = %s is refused as %s", key.c_str(), value.c_str(), text.c_str());
    if (settings(again) != settings(config))
        found("%s = %s is another value as %s", key.c_str(), value.c_str(), text.c_str());
}

// All settings written, and read into a config of defaults.
void round_trip(const mdlm_config &config) {
    mdlm_config copy = MDLM_CONFIG_INIT;
    for (int32_t i = 0; i < mdlm_config_key_count(); ++i) {
        const char *key = mdlm_config_key(i);
        const std::string text = value_of(config, key);
        if (mdlm_config_set(&copy, key, text.c_str()) != MDLM_OK)
            found("%s = %s is not read again: %s", key, text.c_str(), mdlm_last_error());
    }
    if (settings(copy) != settings(config)) found("all settings read again are others:\n%s", settings(copy).c_str());
}

// A config that is valid makes a plan, or one line says why not.
void make_plan(const mdlm_config &config) {
    if (config.num_layers > 6) return;  // as many as are quick
    mdlm_shape shape = MDLM_SHAPE_INIT;
    shape.seq_length = 32, shape.micro_batch_size = 2;
    mdlm_plan *plan = nullptr;
    const mdlm_status status =
        answered(mdlm_plan_create(&config, &shape, nullptr, &plan), "mdlm_plan_create",
                 {MDLM_OK, MDLM_ERROR_OVERFLOW, MDLM_ERROR_BUDGET, MDLM_ERROR_SHAPE, MDLM_ERROR_UNSUPPORTED});
    if ((status == MDLM_OK) != (plan != nullptr))
        found("mdlm_plan_create: %s, and a plan or none", mdlm_status_name(status));
    if (plan == nullptr) return;
    mdlm_memory memory = MDLM_MEMORY_INIT;
    mdlm_plan_cost cost = MDLM_PLAN_COST_INIT;
    const mdlm_status told =
        answered(mdlm_plan_memory(plan, &memory), "mdlm_plan_memory", {MDLM_OK, MDLM_ERROR_OVERFLOW});
    answered(mdlm_plan_get_cost(plan, &cost), "mdlm_plan_get_cost",
             {MDLM_OK, MDLM_ERROR_OVERFLOW, MDLM_ERROR_UNSUPPORTED});
    mdlm_plan_destroy(plan);
    if (told != MDLM_OK) return;
    const auto budget = static_cast<uint64_t>(config.memory_budget);
    if (budget != 0 && config.memory_budget_includes_parameters == 0 && memory.peak_bytes > budget)
        found("the plan for %llu bytes has a peak of %llu", (unsigned long long)budget,
              (unsigned long long)memory.peak_bytes);
}

}  // namespace

void config(std::string_view input) {
    mdlm_config config = MDLM_CONFIG_INIT;
    for (int lines = 0; !input.empty() && lines < 100; ++lines) {
        const std::string_view line = input.substr(0, input.find('\n'));
        input.remove_prefix(std::min(line.size() + 1, input.size()));
        const size_t equals = line.find('=');
        if (equals == std::string_view::npos) continue;
        set_one(config, std::string(line.substr(0, equals)), std::string(line.substr(equals + 1)));
    }
    round_trip(config);
    if (answered(mdlm_config_validate(&config), "mdlm_config_validate",
                 {MDLM_OK, MDLM_ERROR_CONFIG, MDLM_ERROR_OVERFLOW}) == MDLM_OK)
        make_plan(config);
}

}  // namespace fuzz

// SPDX-License-Identifier: Apache-2.0
// Device tables: a name, or JSON.
#include <memory>
#include <nlohmann/json.hpp>

#include "fuzz/target.hpp"

namespace fuzz {
namespace {

// Whatever the table says, a plan by it has times, or one line says why not.
void plan_with(const std::string &table, mdlm_dtype dtype, int64_t budget) {
    mdlm_config config = MDLM_CONFIG_INIT;
    mdlm_shape shape = MDLM_SHAPE_INIT;
    mdlm_target target = MDLM_TARGET_INIT;
    config.num_layers = 2, config.hidden_size = 32, config.num_attention_heads = 4, config.params_dtype = dtype;
    config.tensor_model_parallel_size = 2, config.sequence_parallel = 1;
    config.memory_budget = budget;
    shape.seq_length = 64, shape.micro_batch_size = 2;
    target.device_table = table.c_str(), target.num_threads = 1;
    mdlm_plan *made = nullptr;
    const mdlm_status status = answered(mdlm_plan_create(&config, &shape, &target, &made), "mdlm_plan_create",
                                        {MDLM_OK, MDLM_ERROR_OVERFLOW, MDLM_ERROR_UNSUPPORTED, MDLM_ERROR_BUDGET});
    if ((status == MDLM_OK) != (made != nullptr))
        found("mdlm_plan_create: %s, and a plan or none", mdlm_status_name(status));
    const std::unique_ptr<mdlm_plan, void (*)(mdlm_plan *)> plan(made, mdlm_plan_destroy);
    mdlm_plan_cost cost = MDLM_PLAN_COST_INIT;
    if (made == nullptr || answered(mdlm_plan_get_cost(made, &cost), "mdlm_plan_get_cost",
                                    {MDLM_OK, MDLM_ERROR_OVERFLOW, MDLM_ERROR_UNSUPPORTED}) != MDLM_OK)
        return;
    if (cost.forward_ns > INT64_MAX || cost.backward_ns > INT64_MAX || cost.extra_ns > INT64_MAX)
        found("a negative time");
    // A layer's times are part of the whole's.
    mdlm_plan_cost sum = MDLM_PLAN_COST_INIT;
    for (int64_t i = 0; i <= config.num_layers; ++i) {
        mdlm_plan_layer layer = MDLM_PLAN_LAYER_INIT;
        answered(mdlm_plan_get_layer(made, i, &layer), "mdlm_plan_get_layer", {MDLM_OK});
        sum.forward_ns += layer.forward_ns, sum.backward_ns += layer.backward_ns, sum.extra_ns += layer.extra_ns;
    }
    if (sum.forward_ns != cost.forward_ns || sum.backward_ns != cost.backward_ns || sum.extra_ns != cost.extra_ns)
        found("the layers' times are not the plan's");
}

}  // namespace

void table(std::string_view input) {
    const std::string text(input.substr(0, input.find('\0')));
    const mdlm_status status = answered(mdlm_device_table(text.c_str(), nullptr, 0, nullptr), "mdlm_device_table",
                                        {MDLM_OK, MDLM_ERROR_FORMAT, MDLM_ERROR_NOT_FOUND});
    if (status != MDLM_OK) return;
    const auto written_of = [](const std::string &from) {
        return text_of("mdlm_device_table", [&](char *buf, size_t cap, size_t *out_len) {
            return mdlm_device_table(from.c_str(), buf, cap, out_len);
        });
    };
    const std::string written = written_of(text);
    if (written_of(written) != written) found("written and read again it is another table: %s", written.c_str());
    if (text.find('{') != std::string::npos) {  // what it says is what was taken; by another reader than the library's
        const auto said = nlohmann::json::parse(text), has = nlohmann::json::parse(written);
        for (const auto &[key, value] : said.items())
            if (!has.contains(key) || has.at(key) != value)
                found("%s is %s and was read as another", key.c_str(), value.dump().c_str());
    }
    for (const mdlm_dtype dtype : {MDLM_DTYPE_F32, MDLM_DTYPE_BF16}) plan_with(text, dtype, 0);
    plan_with(text, MDLM_DTYPE_F32, 1 << 20);
}

}  // namespace fuzz

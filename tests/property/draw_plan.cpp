// SPDX-License-Identifier: Apache-2.0
// A draw's plan, out of the one that follows from its config.
#include "draw.hpp"

namespace property {
namespace {

// The storages that a tensor may have where it is: everything but `replay` for the input of a unit, nothing else
// inside.
mdlm_status set_tensor(mdlm_plan *plan, const mdlm_plan_layer &unit, int64_t item, const char *name,
                       mdlm_storage storage) {
    const bool input = std::string(name) == "input";
    if (input && item != unit.unit_first) return MDLM_OK;
    if (input && storage == MDLM_STORAGE_REPLAY) storage = MDLM_STORAGE_KEEP;
    if (!input && storage == MDLM_STORAGE_SHARD) storage = MDLM_STORAGE_KEEP;
    if (!input && unit.unit_count > 1 && storage == MDLM_STORAGE_HOST) storage = MDLM_STORAGE_REPLAY;
    return mdlm_plan_set(plan, item, name, storage);
}

template <class F>
mdlm_status each_tensor(const Draw &d, mdlm_plan *plan, F &&storage_of) {
    const int64_t items = d.config.num_layers + (d.config.final_layernorm != 0);
    std::vector<mdlm_plan_layer> units(static_cast<size_t>(items), MDLM_PLAN_LAYER_INIT);
    for (int64_t i = 0; i < items; ++i)
        if (const mdlm_status s = mdlm_plan_get_layer(plan, i, &units[static_cast<size_t>(i)])) return s;
    for (int64_t i = 0; i < items; ++i)
        for (int32_t t = 0; mdlm_plan_tensor(plan, i, t) != nullptr; ++t) {
            const mdlm_storage storage = storage_of();
            if (storage < 0) continue;
            if (const mdlm_status s =
                    set_tensor(plan, units[static_cast<size_t>(i)], i, mdlm_plan_tensor(plan, i, t), storage))
                return s;
        }
    return MDLM_OK;
}

}  // namespace

mdlm_status edit(const Draw &d, mdlm_plan *plan) {
    for (const auto &[first, count] : d.edits.units)
        if (const mdlm_status s = mdlm_plan_set_unit(plan, first, count)) return s;
    Random r(d.edits.seed);
    return each_tensor(d, plan, [&]() -> mdlm_storage {
        if (!r.percent(d.edits.tensors)) return -1;
        int64_t at = r.in(1, d.edits.keep + d.edits.replay + d.edits.host + d.edits.shard);
        for (const auto &[weight, storage] : {std::pair{d.edits.keep, MDLM_STORAGE_KEEP},
                                              {d.edits.replay, MDLM_STORAGE_REPLAY},
                                              {d.edits.host, MDLM_STORAGE_HOST}})
            if ((at -= weight) <= 0) return storage;
        return MDLM_STORAGE_SHARD;
    });
}

mdlm_status keep_everything(const Draw &d, mdlm_plan *plan) {
    for (int64_t i = 0; i < d.config.num_layers; ++i)
        if (const mdlm_status s = mdlm_plan_set_unit(plan, i, 1)) return s;
    return each_tensor(d, plan, [] { return MDLM_STORAGE_KEEP; });
}

}  // namespace property

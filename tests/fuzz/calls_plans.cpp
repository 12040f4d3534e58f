// SPDX-License-Identifier: Apache-2.0
// Calls on plans.
#include <algorithm>
#include <iterator>

#include "fuzz/calls_machine.hpp"

namespace fuzz {

std::string Machine::json_of(const mdlm_plan *plan) {
    mdlm_memory memory = MDLM_MEMORY_INIT;
    if (answered(mdlm_plan_memory(plan, &memory), "mdlm_plan_memory", {MDLM_OK, MDLM_ERROR_OVERFLOW}) != MDLM_OK)
        return "";
    return text_of("mdlm_plan_to_json",
                   [&](char *buf, size_t cap, size_t *out_len) { return mdlm_plan_to_json(plan, buf, cap, out_len); });
}

void Machine::create_plan() {
    PlanSlot &slot = plans[in.pick(plans.size())];
    mdlm_plan_destroy(std::exchange(slot.handle, nullptr));
    slot.config = configs[in.pick(3)], slot.shape = shape_;
    slot.target.device = static_cast<mdlm_device_kind>(in.pick(4)), slot.target.num_threads = 1 + in.number32() % 3;
    slot.target.cancelled = cancelled, slot.target.cancelled_payload = this;
    const size_t table = in.pick(std::size(device_tables) + 1);
    slot.target.device_table = table == 0 ? nullptr : device_tables[table - 1];
    if (slot.config.num_layers > 4) return;  // as many as are quick
    mdlm_plan *made = nullptr;
    Struct config(slot.config, in);
    Struct shape(slot.shape, in);
    Struct target(slot.target, in);
    const mdlm_status status =
        call("mdlm_plan_create", [&] { return mdlm_plan_create(config.get(), shape.get(), target.get(), &made); });
    if ((status == MDLM_OK) != (made != nullptr))
        found("mdlm_plan_create: %s, and a plan or none", mdlm_status_name(status));
    if (config.plain() && shape.plain() && target.plain()) slot.handle = made;
    else mdlm_plan_destroy(made);  // made for other settings than the slot's, perhaps
}

void Machine::edit_plan() {
    mdlm_plan *p = plans[in.pick(plans.size())].handle;
    const std::string before = p != nullptr ? json_of(p) : "";
    mdlm_status status = MDLM_OK;
    if (in.chance()) {
        const int64_t first = in.number(), count = in.number();
        status = call("mdlm_plan_set_unit", [&] { return mdlm_plan_set_unit(p, first, count); });
    } else {
        const int64_t layer = in.number();
        const char *tensor = mdlm_plan_tensor(p, std::max<int64_t>(layer, 0), static_cast<int32_t>(in.pick(16)));
        if (in.pick(16) == 15) tensor = "no such tensor";
        const mdlm_storage storage = in.number32();
        status = call("mdlm_plan_set", [&] { return mdlm_plan_set(p, layer, tensor, storage); });
        mdlm_storage now = -1;
        if (status == MDLM_OK && layer >= 0 && (mdlm_plan_get(p, layer, tensor, &now) != MDLM_OK || now != storage))
            found("%s was set to %d and is %d", tensor, storage, now);
    }
    if (status != MDLM_OK && p != nullptr && json_of(p) != before) found("an edit was refused and changed the plan");
}

void Machine::ask_plan() {
    const PlanSlot &slot = plans[in.pick(plans.size())];
    const mdlm_plan *p = slot.handle;
    call("mdlm_plan_memory", [&] { return mdlm_plan_memory(p, Struct(mdlm_memory MDLM_MEMORY_INIT, in).get()); });
    call("mdlm_plan_get_cost",
         [&] { return mdlm_plan_get_cost(p, Struct(mdlm_plan_cost MDLM_PLAN_COST_INIT, in).get()); });
    const int64_t layer = in.number();
    call("mdlm_plan_get_layer",
         [&] { return mdlm_plan_get_layer(p, layer, Struct(mdlm_plan_layer MDLM_PLAN_LAYER_INIT, in).get()); });
    if (p == nullptr) return;
    const std::string text = json_of(p);
    if (text.empty()) return;
    mdlm_plan *again = nullptr;
    if (call("mdlm_plan_from_json", [&] {
            return mdlm_plan_from_json(&slot.config, &slot.shape, &slot.target, text.data(), text.size(), &again);
        }) != MDLM_OK)
        found("a plan's JSON is refused: %s", mdlm_last_error());
    const std::string same = json_of(again);
    mdlm_plan_destroy(again);
    if (same != text) found("written and read again it is another plan: %s", same.c_str());
    text_of("mdlm_plan_print",
            [&](char *buf, size_t cap, size_t *out_len) { return mdlm_plan_print(p, buf, cap, out_len); });
}

void Machine::frontier() {
    const mdlm_config &c = configs[in.pick(3)];
    if (c.num_layers > 3) return;
    uint64_t peaks[8] = {}, times[8] = {};
    size_t count = 0;
    const size_t cap = in.pick(9);
    mdlm_target target = MDLM_TARGET_INIT;
    target.num_threads = 1, target.cancelled = cancelled, target.cancelled_payload = this;
    if (call("mdlm_plan_frontier",
             [&] { return mdlm_plan_frontier(&c, &shape_, &target, peaks, times, cap, &count, nullptr); }) != MDLM_OK)
        return;
    for (size_t i = 1; i < std::min(cap, count); ++i)
        if (peaks[i] <= peaks[i - 1] || times[i] >= times[i - 1])
            found("plan %zu of the frontier is no better than the one before", i);
}

}  // namespace fuzz

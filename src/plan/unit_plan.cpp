// SPDX-License-Identifier: Apache-2.0
#include "plan/unit_plan.hpp"

#include <algorithm>

#include "base/sizes.hpp"

namespace mdlm {
namespace {

using PK = Place::Kind;

UnitPlan plan_unit(BlockPlan &plan, const Unit &unit) {
    const BlockPlanInput &in = plan.input;
    UnitPlan u;
    u.unit = unit;
    const Program &program = in.chain.of(unit.first);
    u.storage = in.policies.items[unit.first][program.input];
    if (unit.count == 1) {
        u.single = plan.schedule(unit.first, in.policies.items[unit.first], true);
        u.saves = u.single->saves_input;
    } else {
        for (int64_t i = unit.first; i < unit.first + unit.count; ++i) u.saves = u.saves || plan.layers[i]->anything();
    }
    const bool keeps = u.saves && u.storage == Storage::keep;
    const bool staged = u.saves && u.storage == Storage::host;
    if (staged) u.x = {PK::staging, 0};
    else if (unit.first == 0 && (!keeps || in.borrow_input)) u.x = {PK::caller, 0};
    else u.x = {keeps ? PK::stack : PK::x_slot, 0};
    return u;
}

LayoutKey key_of(const BlockPlan &plan, const UnitPlan &u, bool next_in_slab) {
    LayoutKey key;
    key.x_in_frame = u.x.kind == PK::stack;
    key.x_staged = u.x.kind == PK::staging;
    key.y_in_slab = next_in_slab;
    key.slab_above = plan.input.one_stack();
    key.shard_bytes = u.saves && u.storage == Storage::shard ? share_bytes(plan.input, u.unit.first) : 0;
    return key;
}

}  // namespace

bool next_in_slab(const BlockPlan &plan, const std::vector<UnitPlan> &units, size_t i) {
    return plan.input.one_stack() && i + 1 < units.size() && units[i + 1].x.kind == PK::stack;
}

UnitPlans plan_units(BlockPlan &plan) {
    UnitPlans all;
    for (const Unit &unit : plan.input.policies.units) all.units.push_back(plan_unit(plan, unit));
    int64_t top = 0, host = 0;
    for (size_t i = 0; i < all.units.size(); ++i) {
        UnitPlan &u = all.units[i];
        const LayoutKey key = key_of(plan, u, next_in_slab(plan, all.units, i));
        u.base = top;
        if (u.single != nullptr) {
            u.layout = plan.layout(u.single, key);
            u.frame = u.layout->frame_bytes;
            u.host_bytes = u.layout->staged_bytes;
        } else {
            const int64_t input = input_bytes(plan.input, u.unit.first);
            u.frame = add(key.shard_bytes, key.x_in_frame ? input : 0);
            u.host_bytes = key.x_staged ? input : 0;
        }
        if (u.x.kind == PK::stack) u.x.offset = u.base;
        if (u.host_bytes > 0) {
            u.ordinal = all.on_host++;
            u.host = host;
            host = add(host, u.host_bytes);
            all.staging_bytes = std::max(all.staging_bytes, u.host_bytes);
            if (u.x.kind == PK::staging) u.x.offset = u.ordinal % 2;
        }
        top = add(top, u.frame);
    }
    plan.stack_bytes = top;
    plan.host_bytes = host;
    return all;
}

}  // namespace mdlm

// SPDX-License-Identifier: Apache-2.0
#include "plan/unit_plan.hpp"

#include <algorithm>

#include "base/sizes.hpp"

namespace mdlm {
namespace {

using PK = Place::Kind;

// Alone, an item saves by its policy what its backward reads. In a unit of several the first pass saves nothing: the
// items run forward again, each ready for its backward by its policy, but for the last, whose backward replays what it
// reads.
ItemPlan plan_item(BlockPlan &plan, const Unit &unit, int64_t item) {
    const int64_t end = unit.first + unit.count;
    const bool last = item + 1 == end, alone = unit.count == 1;
    const LayerPolicy policy =
        last && !alone ? replay_all(plan.input.chain.of(item), Storage::replay) : plan.input.policies.items[item];
    ItemPlan p;
    p.item = item;
    p.back = plan.schedule(item, policy, true, !alone);
    p.pass = alone ? p.back : plan.schedule(item, {}, false, true);
    for (int64_t i = item; !last && i < end; ++i) p.again = p.again || plan.layers[i]->anything();
    return p;
}

UnitPlan plan_unit(BlockPlan &plan, const Unit &unit) {
    const BlockPlanInput &in = plan.input;
    UnitPlan u;
    u.unit = unit;
    for (int64_t i = unit.first; i < unit.first + unit.count; ++i) u.items.push_back(plan_item(plan, unit, i));
    u.storage = in.policies.items[unit.first][in.chain.of(unit.first).input];
    u.saves = u.items.front().again || u.items.front().back->saves_input;
    const bool keeps = u.saves && u.storage == Storage::keep;
    const bool staged = u.saves && u.storage == Storage::host;
    if (staged) u.x = {PK::staging, 0};
    else if (unit.first == 0 && (!keeps || in.borrow_input)) u.x = {PK::caller, 0};
    else u.x = {keeps ? PK::stack : PK::x_slot, 0};
    return u;
}

// The first passes of a unit's items: its frame has what the first of them begins with.
void lay_out_passes(BlockPlan &plan, UnitPlan &u, bool next_keeps_input) {
    const bool on_frame = plan.input.slab_on_frame();
    for (ItemPlan &i : u.items) {
        LayoutKey key;
        key.slab_above = on_frame;
        // The output is the next frame's input, right above this frame: there the slab begins.
        key.y_in_slab = on_frame && next_keeps_input && &i == &u.items.back();
        if (&i == &u.items.front()) {
            key.x_in_frame = u.x.kind == PK::stack;
            key.x_staged = u.x.kind == PK::staging;
            if (u.saves && u.storage == Storage::shard) key.shard_bytes = share_bytes(plan.input, i.item);
        }
        i.layout = plan.layout(i.pass, key);
    }
    u.frame = u.items.front().layout->frame_bytes;
    u.host_bytes = u.items.front().layout->staged_bytes;
}

}  // namespace

UnitPlans plan_units(BlockPlan &plan) {
    UnitPlans all;
    for (const Unit &unit : plan.input.policies.units) all.units.push_back(plan_unit(plan, unit));
    int64_t top = plan.input.call_state_bytes, host = 0;
    for (UnitPlan &u : all.units)
        for (ItemPlan &i : u.items) {
            i.kept = top;
            top = add(top, plan.input.chain.of(i.item).kept_bytes(plan.input.bound));
        }
    for (size_t i = 0; i < all.units.size(); ++i) {
        UnitPlan &u = all.units[i];
        lay_out_passes(plan, u, i + 1 < all.units.size() && all.units[i + 1].x.kind == PK::stack);
        u.base = top;
        if (u.x.kind == PK::stack) u.x.offset = u.base;
        if (u.host_bytes > 0) {
            u.ordinal = all.on_host++;
            u.host = host;
            host = add(host, u.host_bytes);
            all.staging_bytes = std::max(all.staging_bytes, u.host_bytes);
            if (u.x.kind == PK::staging) u.x.offset = u.ordinal % staging_slots;
        }
        top = add(top, u.frame);
    }
    plan.stack_bytes = top;
    plan.host_bytes = host;
    for (UnitPlan &u : all.units) u.slab = plan.input.slab_on_frame() ? u.base + u.frame - plan.stack_bytes : 0;
    return all;
}

}  // namespace mdlm

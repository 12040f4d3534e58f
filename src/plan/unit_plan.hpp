// SPDX-License-Identifier: Apache-2.0
// The units of a block plan: what their items run, what each keeps of its input between forward and backward, and where
// its frame stands in the stack. Only src/plan/block_plan*.cpp include it.
#pragma once
#include <vector>

#include "plan/block_plan.hpp"

namespace mdlm {

// What an item runs in its unit.
struct ItemPlan {
    int64_t item = 0;
    const Schedule *pass = nullptr;  // its forward is the first pass
    const Layout *layout = nullptr;  // of the first pass
    // Its backward is the item's. Where it is another one than `pass`, which saves nothing for it then, it has an inner
    // frame.
    const Schedule *back = nullptr;
    bool again = false;  // its forward runs before, in backward
    int64_t kept = 0;    // in the stack: its place for what is always kept
};

struct UnitPlan {
    Unit unit;
    std::vector<ItemPlan> items;
    bool saves = false;  // keeps its input in some form
    Storage storage = Storage::keep;
    Place x;                      // its input, in forward
    int64_t base = 0, frame = 0;  // in the stack
    int64_t slab = 0;             // where the slab begins for what the unit runs
    int64_t ordinal = -1;         // among units with something on the host
    int64_t host = 0, host_bytes = 0;
};

struct UnitPlans {
    std::vector<UnitPlan> units;
    int64_t on_host = 0;        // units with something on the host
    int64_t staging_bytes = 0;  // of a staging slot: the most that one of them has there
};
// Also writes the plan's stack_bytes and host_bytes. Needs the plan's input and layers.
UnitPlans plan_units(BlockPlan &plan);

// block_plan_entries.cpp: entries, places and fixed_bytes; needs the units.
void lay_out_entries(BlockPlan &plan, UnitPlans units);
// block_plan_totals.cpp: items, scratch_bytes and peak_bytes; needs the entries.
void add_up(BlockPlan &plan, const std::vector<UnitPlan> &units);

}  // namespace mdlm

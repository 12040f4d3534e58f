// SPDX-License-Identifier: Apache-2.0
// The units of a block plan: what each keeps of its input between forward and backward, and where its frame stands in
// the stack. Only src/plan/block_plan*.cpp include it.
#pragma once
#include <vector>

#include "plan/block_plan.hpp"

namespace mdlm {

struct UnitPlan {
    Unit unit;
    bool saves = false;  // keeps its input in some form
    Storage storage = Storage::keep;
    Place x;                      // its input, in forward
    int64_t base = 0, frame = 0;  // in the stack
    int64_t ordinal = -1;         // among units with something on the host
    int64_t host = 0, host_bytes = 0;
    const Schedule *single = nullptr;  // of a unit of one
    const Layout *layout = nullptr;
};

struct UnitPlans {
    std::vector<UnitPlan> units;
    int64_t on_host = 0;        // units with something on the host
    int64_t staging_bytes = 0;  // of a staging slot: the most that one of them has there
};
// Also writes the plan's stack_bytes and host_bytes. Needs the plan's input and layers.
UnitPlans plan_units(BlockPlan &plan);
// The next unit's input is kept right above this unit's frame: the output goes to the start of the slab.
bool next_in_slab(const BlockPlan &plan, const std::vector<UnitPlan> &units, size_t index);

// block_plan_entries.cpp: entries, places and fixed_bytes; needs the units.
void lay_out_entries(BlockPlan &plan, UnitPlans units);
// block_plan_totals.cpp: items, scratch_bytes and peak_bytes; needs the entries.
void add_up(BlockPlan &plan, const std::vector<UnitPlan> &units);

}  // namespace mdlm

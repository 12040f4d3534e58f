// SPDX-License-Identifier: Apache-2.0
// What a block tells the context's log: settings that work, but hardly as their user meant them.
#pragma once
#include <string>

#include "block/engine.hpp"
#include "plan/block_plan.hpp"

namespace mdlm {

// A plan that costs time and saves next to nothing against keeping everything; "" when there is nothing to say.
std::string remark_on_plan(const Config &config, const mdlm_shape &shape, const BlockPlan &plan);
// Initial values that depend on how many layers the whole model has, where nobody said.
std::string remark_on_initial_values(const Config &config);

}  // namespace mdlm

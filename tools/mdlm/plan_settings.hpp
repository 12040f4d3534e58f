// SPDX-License-Identifier: Apache-2.0
// Plans through the C ABI, and what named settings come to: Megatron's own, and the library's modules.
#pragma once
#include <memory>
#include <string>
#include <vector>

#include "plan.hpp"

namespace mdlm::tools {

using PlanHandle = std::unique_ptr<mdlm_plan, decltype(&mdlm_plan_destroy)>;

struct Planned {
    std::string name, flags;  // "" for the planner's
    mdlm_memory memory = MDLM_MEMORY_INIT;
    mdlm_plan_cost cost = MDLM_PLAN_COST_INIT;
    // Bytes as a budget counts them.
    uint64_t counted(bool with_parameters) const {
        uint64_t sum = memory.peak_bytes;
        for (const uint64_t bytes : {memory.parameter_bytes, memory.gradient_bytes})
            if (with_parameters) sum = sum + bytes < sum ? UINT64_MAX : sum + bytes;
        return sum;
    }
};

mdlm_target target_of(const PlanOptions &options);
// By the config's settings or its budget. Throws Bad with the library's line.
PlanHandle make_plan(const PlanOptions &options, const mdlm_config &config);
// as_megatron: the context stays where core_attn is replayed, since Megatron's linear_proj saves its input.
Planned measure(const PlanOptions &options, const mdlm_config &config, std::string name, std::string flags,
                bool as_megatron = false);
// What Megatron can do with its own flags, in its own syntax: none; selective with core_attn, mlp or both; full,
// uniform and block with any count, also with inputs distributed over the group, where the config allows it;
// offloading, which it has only without recompute and not for all layers. Its module layernorm is not there, since it
// does nothing under its default layer spec. Bytes are Megatron's; times are those of the library's replay, which is
// never more. Peaks rise; what another beats in peak and time stays in, what makes no difference does not.
std::vector<Planned> megatron_settings(const PlanOptions &options);
// selective with any of the library's modules, most of which Megatron does not have.
std::vector<Planned> module_settings(const PlanOptions &options);
// Whether the flags say what is recomputed or offloaded, and the config without that (offloading stays: the planner may
// use it).
bool recomputes(const mdlm_config &config);
mdlm_config without_recompute(mdlm_config config);
// The fastest that fits; nullptr when none does.
const Planned *best_that_fits(const std::vector<Planned> &settings, uint64_t budget, bool with_parameters);

std::string bytes_text(uint64_t bytes);  // "1.50 GiB"
std::string time_text(uint64_t ns);      // "1.50 ms"

}  // namespace mdlm::tools

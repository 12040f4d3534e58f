// Plans through the C ABI, and what Megatron's own settings come to.
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
Planned measure(const PlanOptions &options, const mdlm_config &config, std::string name, std::string flags);
// Every setting that Megatron has flags for: none; selective with any modules; full, uniform and block with any count; the last two also
// with inputs distributed over the group, where the config allows it. Peaks rise; what another beats in peak and time stays in.
std::vector<Planned> megatron_settings(const PlanOptions &options);
// The fastest that fits; nullptr when none does.
const Planned *best_that_fits(const std::vector<Planned> &settings, uint64_t budget, bool with_parameters);

std::string bytes_text(uint64_t bytes);  // "1.50 GiB"
std::string time_text(uint64_t ns);      // "1.50 ms"

}  // namespace mdlm::tools

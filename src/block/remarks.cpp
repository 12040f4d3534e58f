// SPDX-License-Identifier: Apache-2.0
#include "block/remarks.hpp"

#include <algorithm>
#include <cstdio>

namespace mdlm {
namespace {

using ll = long long;

// What a step of the plan does that one which keeps everything does not.
struct Extra {
    int64_t replayed_ops = 0;
    bool moves = false;  // to the host and back, or shares over the group
    bool costs_time() const { return replayed_ops > 0 || moves; }
};
Extra extra_of(const BlockPlan &plan) {
    Extra extra;
    for (const ItemUsage &item : plan.items) extra.replayed_ops += item.replayed_ops;
    extra.moves = std::any_of(plan.backward.begin(), plan.backward.end(), [](const PlanEntry &e) {
        return e.kind == PlanEntry::Kind::from_host || e.kind == PlanEntry::Kind::gather_input;
    });
    return extra;
}

// The peak of the plan that keeps everything; 0 when it has none that fits in 63 bits.
int64_t peak_of_keeping_all(const Config &given, const mdlm_shape &shape, const BlockPlan &plan) {
    Config config = given;
    config.recompute_granularity = MDLM_RECOMPUTE_GRANULARITY_NONE;
    config.cpu_offloading_num_layers = 0;
    BlockPlanInput in = plan.input;
    in.policies = policies_of(config, in.chain);
    try {
        return make_block_plan(plan_input(config, shape, in.chain, in.policies, in.trains, in.traits))->peak_bytes;
    } catch (const Error &) {
        return 0;
    }
}

}  // namespace

std::string remark_on_plan(const Config &config, const mdlm_shape &shape, const BlockPlan &plan) {
    const Extra extra = extra_of(plan);
    if (!extra.costs_time()) return "";
    const auto &units = plan.input.policies.units;
    const int64_t layers = plan.input.chain.in_units();
    const bool one_unit = layers > 1 && units[0].count == layers;
    const int64_t all = peak_of_keeping_all(config, shape, plan);
    const bool saves_little = all > 0 && static_cast<double>(plan.peak_bytes) >= 0.98 * static_cast<double>(all);
    if (!one_unit && !saves_little) return "";
    char line[512], peaks[160] = "";
    if (all > 0)
        std::snprintf(peaks, sizeof peaks, ": its peak_bytes is %lld, that of a plan that keeps everything %lld",
                      ll{plan.peak_bytes}, ll{all});
    if (one_unit)
        std::snprintf(line, sizeof line,
                      "plan: one unit holds all %lld layers, so its replay stands beside everything that it keeps%s; "
                      "shorter units need less",
                      ll{layers}, peaks);
    else
        std::snprintf(line, sizeof line, "plan: it replays %lld ops in backward%s and saves next to nothing%s",
                      ll{extra.replayed_ops}, extra.moves ? ", moves saved tensors" : "", peaks);
    return line;
}

std::string remark_on_initial_values(const Config &c) {
    if (c.layer_offset == 0 || c.raw.total_num_layers != 0 || c.raw.output_init_std != 0 || c.init_method_std == 0)
        return "";
    char line[512];
    std::snprintf(line, sizeof line,
                  "initial values: layer_offset = %lld without total_num_layers: output_init_std is taken from "
                  "layer_offset + num_layers = %lld, "
                  "which is right for the last pipeline stage only",
                  ll{c.layer_offset}, ll{c.total_num_layers});
    return line;
}

}  // namespace mdlm

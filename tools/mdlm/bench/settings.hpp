// SPDX-License-Identifier: Apache-2.0
// What is timed: a block's settings and shape, under a name.
#pragma once
#include <cstddef>
#include <string>
#include <vector>

#include "options.hpp"

namespace mdlm::tools::bench {

struct Setting {
    std::string name;  // "none", "selective layernorm,mlp_act", "full uniform 2"; on a curve the point
    mdlm_config config;
    int64_t seq_length, micro_batch_size;
    bool one_rank = false;        // run by rank 0 alone, with as many threads as all ranks have together
    std::ptrdiff_t against = -1;  // the setting that is the same on one rank; -1: there is none
    int64_t percent = 0;          // with --budgets: which of them it is for; 0: the baseline
    int64_t budget = 0;           // its bytes
};

// The recompute settings of a config, as a name.
std::string recompute_name(const mdlm_config &config);
// Whether it has any.
bool recomputes(const mdlm_config &config);
// The config with all recompute settings that differ: none first, then selective and full; distributed over the group,
// too, where that is allowed.
std::vector<mdlm_config> recompute_settings(const mdlm_config &config);

// The planner's plan for a budget at each percentage of the way from the smallest that fits to what no replay needs,
// and full with method block and the fewest layers that fit in it; none, their baseline, first.
std::vector<Setting> budget_settings(const Options &options);

// With --budgets those, with --sweep all that differ, with --curve a point each, and otherwise the config's behind
// none, its baseline. With --against-one-rank, behind those, what each is compared with.
std::vector<Setting> settings_of(const Options &options);

}  // namespace mdlm::tools::bench

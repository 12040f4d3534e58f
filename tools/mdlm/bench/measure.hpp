// SPDX-License-Identifier: Apache-2.0
// Runs settings in turn and takes times: of forward, of backward, and of every op. With several ranks a time ends when
// all are done; ops, memory and counts are rank 0's.
#pragma once
#include <compare>
#include <functional>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "../ranks.hpp"
#include "settings.hpp"

namespace mdlm::tools::bench {

// Ops that are the same but for their layer. The texts of op and tensor outlive all blocks.
struct OpKey {
    std::string op, tensor;
    mdlm_phase phase = MDLM_PHASE_FORWARD;
    mdlm_work work = MDLM_WORK_OTHER;
    int64_t m = 0, n = 0, k = 0;
    auto operator<=>(const OpKey &) const = default;
};

struct OpTotal {
    uint64_t calls = 0, flops = 0, bytes = 0;
    int64_t ns = 0;
    int64_t least_ns = 0;  // of one call
};
using OpTotals = std::map<OpKey, OpTotal>;

// One forward and its backward.
struct Step {
    int64_t forward_ns = 0, backward_ns = 0;
    OpTotals ops;
    int64_t total_ns() const { return forward_ns + backward_ns; }
};

// When parts of the last step ran, for a timeline.
struct Timeline {
    int64_t forward_begin = 0, forward_end = 0, backward_begin = 0, backward_end = 0;
    std::vector<mdlm_op_event> events;  // tensor points into Measurement::names
};

struct Measured {
    Setting setting;
    mdlm_memory memory = MDLM_MEMORY_INIT;
    mdlm_tape_stats stats = MDLM_TAPE_STATS_INIT;
    mdlm_plan_cost cost = MDLM_PLAN_COST_INIT;  // of its plan, by the context's table; 0 where no table was asked for
    std::vector<Step> steps;                    // by repeat: steps[r] of all settings ran one after another
    Timeline last;
};

struct Measurement {
    std::string device;  // mdlm_context_info
    int32_t ranks = 1;
    bool processes = false;    // the ranks are processes, not threads of this one
    int32_t threads_each = 0;  // of a rank; 0: of one rank, all cores
    bool all_alive = true;
    std::vector<Measured> settings;
    std::unique_ptr<std::set<std::string>> names;  // of tensors
};

// progress is told before each step, by rank 0: how many are done, of how many, and whose turn it is. Throws Bad for
// what the library refuses. In processes without rank 0 the result is empty.
using Progress = std::function<void(int64_t done, int64_t of, const std::string &name)>;
Measurement measure(Ranks &ranks, const Options &options, const std::vector<Setting> &settings,
                    const Progress &progress);

}  // namespace mdlm::tools::bench

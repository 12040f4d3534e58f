// SPDX-License-Identifier: Apache-2.0
// What the words behind "mdlm bench" ask for.
#pragma once
#include <cstdint>
#include <string>
#include <vector>

#include "mdlm/mdlm.h"

namespace mdlm::tools::bench {

enum class Alive { automatic, all, one };
enum class Curve { none, seq_length, micro_batch_size };

struct Options {
    mdlm_config config = MDLM_CONFIG_INIT;
    int64_t seq_length = 1024, micro_batch_size = 1;
    mdlm_device_kind device = MDLM_DEVICE_CPU;
    int32_t threads = 0;  // of each rank
    mdlm_matmul matmul = MDLM_MATMUL_AUTO;
    std::string device_table;  // empty: calibrate, where a budget needs one
    int64_t repeats = 9, warmup = 1, micro_batches = 1;
    Alive alive = Alive::automatic;
    bool sweep = false, baseline = true, against_one_rank = false, profile = false, json = false;
    Curve curve = Curve::none;
    std::vector<int64_t> points;   // of the curve
    std::vector<int64_t> budgets;  // percent of what can be saved; the planner against full/block at each
    std::string svg, trace;        // files; empty: none
};

// Throws Bad for words that cannot be used. Rules between the settings of the config are the library's to check. Where
// a launcher has started processes, they are the ranks.
Options parse(const std::vector<std::string> &words);

const char *name_of(Curve curve);

}  // namespace mdlm::tools::bench

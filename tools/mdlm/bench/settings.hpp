// What is timed: a block's settings and shape, under a name.
#pragma once
#include <string>
#include <vector>

#include "options.hpp"

namespace mdlm::tools::bench {

struct Setting {
    std::string name;  // "none", "selective layernorm,mlp_act", "full uniform 2"; on a curve the point
    mdlm_config config;
    int64_t seq_length, micro_batch_size;
};

// The recompute settings of a config, as a name.
std::string recompute_name(const mdlm_config &config);

// With --sweep all that differ, with --curve a point each, and otherwise the config's behind none, its baseline.
std::vector<Setting> settings_of(const Options &options);

}  // namespace mdlm::tools::bench

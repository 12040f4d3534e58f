// SPDX-License-Identifier: Apache-2.0
// One golden case, under one setting or many, on one rank or as one of a group.
#pragma once
#include <string>
#include <vector>

#include "run.hpp"

namespace mdlm::tools {

// Why t ranks cannot share the case; empty if they can.
std::string why_not(const Case &c, const mdlm_config &config);

struct Named {
    std::string name;
    mdlm_config config;
    size_t like;  // the setting whose bits it must have
};

// The config's own; with sweep all recompute settings, and with t > 1 those with sequence parallelism too, where the
// case allows it.
std::vector<Named> settings_of(const Case &c, const mdlm_config &config, bool sweep);

struct Found {
    Errors errors;        // the largest of all ranks
    std::string setting;  // that has the largest of them
    size_t settings = 0;
    std::string other_bits;  // the first setting whose results have other bits than they should; empty: none
};

// On one rank of the context's group, which compares the whole of its results.
Found find(const Rank &rank, mdlm_context *context, const Case &c, const std::vector<Named> &settings, double atol);

}  // namespace mdlm::tools

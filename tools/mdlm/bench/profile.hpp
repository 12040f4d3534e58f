// SPDX-License-Identifier: Apache-2.0
// Where the time of a setting's steps goes, by op and phase.
#pragma once
#include <vector>

#include "figures.hpp"

namespace mdlm::tools::bench {

struct ProfileRow {
    OpKey op;
    double ms = 0;                            // of one step: median over the repeats
    double share = 0;                         // of the step
    uint64_t calls = 0;                       // in one step
    double flops_per_s = 0, bytes_per_s = 0;  // attention's FLOPs scaled by the visible share
};

struct Profile {
    std::vector<ProfileRow> rows;              // the longest first
    double between_ms = 0, between_share = 0;  // of the step, in no op
};

Profile profile_of(const Measured &measured);
const char *name_of(mdlm_phase phase);
const char *name_of_work(mdlm_work work);

}  // namespace mdlm::tools::bench

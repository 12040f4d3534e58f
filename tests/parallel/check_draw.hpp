// SPDX-License-Identifier: Apache-2.0
// What must hold for a drawn step on a group, whatever was drawn.
#pragma once
#include "../property/step.hpp"

namespace parallel {

struct Tally {
    int draws = 0, bf16 = 0, sequence_parallel = 0, shards = 0, units_of_several = 0, dropout = 0, grouped = 0,
        packed = 0, batch_first = 0, host = 0, tapes = 0, frozen = 0;
    double worst = 0;  // distance from the truth in units of what is allowed
    std::string where;
};

// On rank 0 of the group the step is run by one rank too, and in float64. intruder: of this rank, in what the group
// runs.
std::string check_draw(const property::Draw &draw, mdlm_comm *comm, int rank, int size, Tally &tally,
                       property::Intruder *intruder = nullptr);

}  // namespace parallel

// SPDX-License-Identifier: Apache-2.0
// One rank of a tensor-parallel group, and what its code says to the others.
#pragma once
#include <cstdint>
#include <string>
#include <vector>

#include "mdlm/mdlm.h"

namespace mdlm::tools {

// One rank, as code that runs on all of them sees it. Its collectives throw Bad.
struct Rank {
    int32_t rank = 0, size = 1;
    mdlm_comm *comm = nullptr;  // NULL: a group of one
    bool leads() const { return rank == 0; }
    void meet() const;                                    // returns when all ranks have come
    double largest(double mine) const;                    // of all ranks' numbers
    std::string of_first(const std::string &mine) const;  // rank 0's text
    // Ranks' parts, one behind the other.
    std::vector<double> gather(const std::vector<double> &mine) const;
};

}  // namespace mdlm::tools

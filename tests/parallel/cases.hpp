// SPDX-License-Identifier: Apache-2.0
// What must hold on a tensor-parallel group, as code of one rank: the same cases run on threads of one process and on
// processes.
#pragma once
#include <string>
#include <vector>

#include "support/group.hpp"

namespace parallel {

struct Case {
    std::string name;
    int size;
    mdlm_test::RankBody run;
};

// By subject; a rank for which something does not hold returns or throws a line. Rank 0 prints figures.
std::vector<Case> golden_cases();
std::vector<Case> sharding_cases();
std::vector<Case> drawn_cases();
std::vector<Case> exact_cases();
std::vector<Case> closed_form_cases();
std::vector<Case> memory_cases();

inline std::vector<Case> all_cases() {
    std::vector<Case> all;
    for (auto *list : {golden_cases, sharding_cases, drawn_cases, exact_cases, closed_form_cases, memory_cases})
        for (Case &c : list()) all.push_back(std::move(c));
    return all;
}

}  // namespace parallel

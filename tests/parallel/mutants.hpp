// SPDX-License-Identifier: Apache-2.0
// Faults planted on purpose: mistakes that tensor parallelism invites. What check_draw compares must see each.
#pragma once
#include <atomic>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "../property/step.hpp"

namespace parallel {

struct Mutant {
    std::string name;
    int size;  // of the group in which it shows
    // One rank's. reached counts how often the fault was done.
    std::function<std::unique_ptr<property::Intruder>(int rank, int size, std::atomic<int64_t> &reached)> make;
};

std::vector<Mutant> op_mutants();      // collectives, and what is done with their results
std::vector<Mutant> offset_mutants();  // what a rank takes for its part

}  // namespace parallel

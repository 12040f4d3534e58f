// SPDX-License-Identifier: Apache-2.0
// Faults planted on purpose: each is a mistake that has been made in recomputation somewhere. The comparison of bits
// must see it.
#pragma once
#include <memory>
#include <string>
#include <vector>

#include "step.hpp"

namespace property {

class Mutant : public Intruder {
public:
    explicit Mutant(std::string name) : name(std::move(name)) {}
    void backward(bool inside) override { in_backward = inside; }
    const std::string name;
    int64_t reached = 0;       // how often the fault was done
    bool in_backward = false;  // a forward kernel then is a replay
};

std::vector<std::unique_ptr<Mutant>> device_mutants();  // faults in what kernels are given, through a wrapped device
std::vector<std::unique_ptr<Mutant>> plan_mutants();    // faults in schedules, layouts and places

}  // namespace property

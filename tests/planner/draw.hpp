// SPDX-License-Identifier: Apache-2.0
// Chains drawn from a seed, and how a case that fails is told.
#pragma once
#include <string>

#include "machine.hpp"
#include "support/split_mix.hpp"

namespace planner_test {

using mdlm_test::Random;

struct Sizes {
    int64_t layers = 6, types = 3, policies = 3, forms = 2, depth = 3, in_flight = 3;
    int64_t bytes = 12, ns = 9;  // largest of one number
    double plans = 3000;         // most plans; what has more is drawn again, smaller
};
Chain draw_chain(Random &random, const Sizes &sizes);

// Calls body(seed) for each seed in [first, first + count), or only for what MDLM_DRAW names ("17", "100-200"). A body
// returns what is wrong, or ""; that is reported with the chain and with the command that repeats just this one.
struct Case {
    Chain chain;
    std::string wrong;
};
void for_seeds(const char *test, uint64_t first, uint64_t count, Case (*body)(uint64_t seed));

}  // namespace planner_test

// SPDX-License-Identifier: Apache-2.0
// Runs a draw's passes in an arena of the test's own, by the library's runner and the plan's offsets, one step at a
// time, and watches every byte: what is not needed is NaN, and nothing else is ever written.
#pragma once
#include <string>

#include "lifetimes.hpp"

namespace property::memory {

struct ArenaRun {
    Outcome outcome;
    int64_t high_water = 0;      // as the runner counts it
    bool top_written = false;    // a byte of the highest granule below the predicted peak was written,
    bool top_is_tensor = false;  // and not only an op's workspace, which it need not use to the end, reaches there
    std::string top;             // the op that the runner counted highest
    std::string fault;           // the first thing that is not as planned; empty: none
};

ArenaRun run_in_arena(World &world, const Lifetimes &lifetimes);

}  // namespace property::memory

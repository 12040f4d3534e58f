// SPDX-License-Identifier: Apache-2.0
// Runs a draw's passes with a heap block for every piece of memory, made before its producer and freed after its last
// reader: what the plan's offsets say plays no part.
#pragma once
#include "lifetimes.hpp"

namespace property::memory {

struct DebugRun {
    Outcome outcome;
    // Bytes at once, each piece rounded as the plan rounds; neither the caller's nor the host's.
    int64_t most_alive = 0;
};

DebugRun run_apart(World &world, const Lifetimes &lifetimes);

}  // namespace property::memory

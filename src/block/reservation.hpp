// SPDX-License-Identifier: Apache-2.0
// What reserve makes; replaced as a whole.
#pragma once
#include <array>

#include "block/block.hpp"

namespace mdlm {

struct Block::Reservation {
    mdlm_shape shape;
    std::unique_ptr<BlockPlan> plan;
    Memory arena, host, rotary;
    std::vector<std::unique_ptr<Tape>> tapes;
    // Of evaluations, in turn: an image may be written again when it has been copied.
    std::array<CallState, 4> evaluations;
    int64_t evaluated = 0;
    std::unique_ptr<Events> events;
    struct Prepared {
        Extent extent;
        uint64_t used = 0;           // when last; 0: empty
        std::shared_ptr<void> made;  // the device's
    };
    std::array<Prepared, 16> prepared;  // the shapes of the last calls
    uint64_t calls = 0;
    int64_t in_flight = 0;  // tapes that are full
    int64_t number = 0;     // of the group's reserves: which block it is of, alike on all ranks
};

}  // namespace mdlm

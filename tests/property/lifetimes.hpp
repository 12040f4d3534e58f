// SPDX-License-Identifier: Apache-2.0
// All passes of a draw as one list of steps over pieces of memory, and from when to when each piece is needed. Derived
// from the order of the steps and from what they read; nothing here looks at an offset.
#pragma once
#include "memory_world.hpp"

namespace property::memory {

// Memory that is assigned at one place and read at others. Values that the schedule keeps in one place (Value::same_as)
// are one piece.
struct Piece {
    enum class Where { arena, host, x, y, dy, dx } where = Where::arena;  // the last four are the caller's
    size_t event = 0;                                                     // of the caller's buffer
    int64_t bytes = 0;              // what the values have at the batch's extent; not rounded
    int64_t first = -1, last = -1;  // lines
    bool needed(int64_t line) const { return first <= line && line <= last; }
};

// One step, or one copy of whole tensors (entries that are no layer): then in and out correspond. Of a sharded input: a
// rank's share, out of the whole or to be made whole by the group.
struct Line {
    size_t event = 0;
    const mdlm::PlanEntry *entry = nullptr;
    const mdlm::ScheduledOp *step = nullptr;
    std::vector<int32_t> in, out;  // pieces
    int32_t workspace = -1;        // piece
    std::vector<int32_t> values;   // of a copy, as in and out
};

struct Lifetimes {
    std::vector<Line> lines;
    std::vector<Piece> pieces;
    std::vector<std::vector<int32_t>> born, dead;  // by line, pieces of the arena and the host
};

Lifetimes derive(const World &world);

}  // namespace property::memory

// SPDX-License-Identifier: Apache-2.0
// The ops of one layer under one policy, in order: forward, and backward with the replay that it needs and no more.
#pragma once
#include <memory>
#include <vector>

#include "layer/derivative.hpp"
#include "plan/policy.hpp"

namespace mdlm {

// Where a value lives.
enum class Home {
    frame,    // saved in the arena from forward to backward
    staged,   // saved on the host, in a staging slot while in use
    kept,     // in the tape's place for what no policy may replay
    scratch,  // dies within the phase
    side,     // given by the caller beside x
    x,
    y,  // the layer's input and output, placed by the block
    dy,
    dx  // their gradients, placed by the block
};

// One incarnation of a buffer: what forward makes, what replay makes again and what backward makes are values of their
// own.
struct Value {
    BufferId buffer = no_buffer;  // no_buffer: an op's workspace
    Home home = Home::scratch;
    int64_t bytes = 0;     // at the reserved extent, rounded
    int32_t same_as = -1;  // in backward and forward apart: shares the storage of this value (see Schedule::root)
};

// An op of the layer program or of its derivative, at its place in a schedule.
struct ScheduledOp {
    int32_t op = 0;
    bool backward = false;  // op is one of Differentiated::backward, else of Program::ops
    bool replay = false;
    std::vector<int32_t> in, out;  // values
    int32_t workspace = -1;        // value
};

struct Schedule {
    std::shared_ptr<const Differentiated> layer;
    std::vector<Value> values;
    std::vector<ScheduledOp> forward, backward;
    std::vector<int32_t> saved;  // values in frame, staged or kept, in the order of their birth
    bool saves_input = false;    // backward or its replay reads x
    int32_t x = -1, y = -1, dy = -1, dx = -1;
    const Op &op(const ScheduledOp &s) const { return layer->op(s.op, s.backward); }
    // The value whose storage a value uses: itself, unless the planner decided to work in place.
    int32_t root(int32_t v) const {
        while (values[v].same_as >= 0) v = values[v].same_as;
        return v;
    }
};

// With save false: a forward that leaves nothing (evaluation, the first pass over a unit of several layers). In such a
// unit the first pass makes what is always kept, and what runs again finds it there: ops that make it are left out.
Schedule make_schedule(std::shared_ptr<const Differentiated> layer, const LayerPolicy &policy, bool save, Extent bound,
                       const Traits &traits, bool in_unit = false);

}  // namespace mdlm

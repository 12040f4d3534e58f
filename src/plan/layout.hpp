// SPDX-License-Identifier: Apache-2.0
// Byte offsets for one layer's schedule: the frame [0, frame) that is saved, and the slab. Frame bytes serve as scratch
// until their tensor is born and after its last reader. Where the slab stands right above the frame a scratch buffer
// may lie across the border; where several tapes have frames of their own and share the slab, none does.
#pragma once
#include <vector>

#include "plan/schedule.hpp"

namespace mdlm {

// Where a value stands in its layer's frame, slab or staging slot; where those are, a PlanEntry says.
struct ValuePlace {
    enum class Where {
        outside,
        frame,
        slab,
        staged,
        kept
    } where = Where::outside;  // outside: what the block places, or the caller gives
    int64_t offset = 0;        // from the start of the frame, the slab, the staging slot or what the item always keeps
};

struct Layout {
    int64_t frame_bytes = 0;                        // saved
    int64_t staged_bytes = 0;                       // on the host
    int64_t forward_slab = 0, backward_slab = 0;    // heights of the slab
    int64_t forward_alive = 0, backward_alive = 0;  // most bytes alive, frame and slab together
    std::vector<ValuePlace> places;                 // by value
};

struct LayoutKey {
    bool x_in_frame = false;  // the input stands at the start of the frame
    bool x_staged = false;    // the input stands at the start of the staging slot
    // The output is the next frame's input, right above this frame: it takes the start of the slab.
    bool y_in_slab = false;
    bool slab_above = false;  // the slab stands right above the frame
    int64_t shard_bytes = 0;  // a share of the input stands at the start of the frame instead
    auto operator<=>(const LayoutKey &) const = default;
};

Layout make_layout(const Schedule &schedule, const LayoutKey &key);

}  // namespace mdlm

// SPDX-License-Identifier: Apache-2.0
// Offsets for buffers whose lifetimes are known: two-dimensional packing of (time, bytes) with as little height as we
// can.
#pragma once
#include <cstdint>
#include <vector>

namespace mdlm {

struct PackItem {
    int64_t bytes = 0;             // a multiple of the granule
    int32_t birth = 0, death = 0;  // places in the list of ops, both included
    int64_t offset = -1;           // given (>= 0), or found
    bool overlaps(const PackItem &o) const { return birth <= o.death && o.birth <= death; }
};

// Two segments: [0, split) and [split, infinity); one when split is 0. No item crosses from one to the other. Items
// with an offset stay there. Writes the other offsets and returns the height: the end of the highest item, at least
// split.
int64_t pack(std::vector<PackItem> &items, int64_t split);

// Most bytes alive at once: no packing can be lower.
int64_t most_alive(const std::vector<PackItem> &items);

}  // namespace mdlm

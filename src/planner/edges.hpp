// SPDX-License-Identifier: Apache-2.0
// What the solver and the frontier share: the items of a chain as edges for the search, with one tape in flight or
// several.
#pragma once
#include "planner/search.hpp"

namespace mdlm::planner {

// One tape: all items that can stand in a plan of at most `limit` bytes, nothing inside of units yet.
Edges edges_of_one(const Space &space, int64_t limit);
// Finds what is inside of units (the space's limit is that of the edges), and drops those that cannot fit.
void fill_units(Space &space, Edges &edges, int64_t limit);
// The least bytes that any plan needs; infinite when the edges lead nowhere.
int64_t least_bytes(const Edges &edges, const Space &space, int64_t loss_bytes);
bool has_units(const Edges &edges);
// By how much the cost of a plan may be too high.
int64_t error_of(const Edges &edges);

// Several tapes: the slab that each item needs decides; given the slab, only what is retained counts. One entry for
// every slab at which an item first fits, or a unit gets cheaper.
struct Gain {
    int64_t slab;
    size_t place;  // among Gains::layers
    Edge edge;     // as it is from this slab on; nothing inside, its cost in arc.ns
};
// Stretches of layers that are alike share their entries: a chain of thousands of layers has few of them.
struct Gains {
    std::vector<Gain> all;                     // slabs rise; those below what the loss needs are raised to it
    std::vector<std::vector<int32_t>> layers;  // by place: where the item may begin
    const std::vector<int32_t> &layers_of(const Gain &g) const { return layers[g.place]; }
};
Gains gains_of(Space &space, int64_t limit);
// Adds what comes with a slab, or makes the same item (count, choice) cheaper, at all its layers.
void apply(const Gains &gains, const Gain &gain, Edges &edges);
// The least that k stacks and the slab need, over all slabs.
int64_t least_bytes_of_several(const Space &space);
// The least that one stack needs.
int64_t least_stack(const Edges &edges);

}  // namespace mdlm::planner

// SPDX-License-Identifier: Apache-2.0
// The search: from the last layer to the first, the least cost of what remains as a function of the bytes available to
// it.
#pragma once
#include <functional>

#include "planner/bounds.hpp"

namespace mdlm::planner {

// What the search found for every layer.
struct SearchResult {
    std::vector<Steps> from;  // by layer; from[L] is what the loss needs
    // Plans that were left out cost at least this; infinite when none was that could matter.
    int64_t left_out_ns = infinite;
    int64_t error_ns = 0;  // without bounds: costs may be too high by this
    const Steps &all() const { return from[0]; }
};

struct SearchOptions {
    int64_t limit = 0;  // bytes; nothing beyond is looked at
    int64_t loss_bytes = 0;
    const Bounds *bounds = nullptr;  // with it, what cannot be part of a plan of at most `most_ns` is left out
    int64_t most_ns = infinite;
    size_t cap = SIZE_MAX;  // steps of one layer that are kept: the first, and those with the lowest bounds or,
                            // without, that gain most
    // Asked for when there are more and no `bounds`: all over the bytes, those that cost least above the cheapest way
    // at some price are kept.
    std::function<const Bounds &()> near;
    Cancellation *cancellation = nullptr;
};
void search(const Edges &edges, const SearchOptions &options, SearchResult &out);

// What the peak of a plan with so many tapes in flight is made of, given the most bytes of slab that an item may use
// (several tapes).
struct PeakRule {
    bool one = true;   // one tape: the slab stands above the stack
    int64_t slab = 0;  // several tapes
};
// The order of plans: policies before units, each by index, shorter units before longer.
bool before(const ChainPlan &a, const ChainPlan &b);
// The first plan, in that order, that a search found with at most `bytes` and `ns`; `from` as Search's.
ChainPlan rebuild(Space &space, const std::vector<Steps> &from, int64_t bytes, int64_t ns, const PeakRule &rules);

}  // namespace mdlm::planner

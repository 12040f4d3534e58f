// SPDX-License-Identifier: Apache-2.0
// The plans of a chain, as ways from layer to layer, and what a unit costs inside as a step function of the bytes that
// it may use.
#pragma once
#include <array>
#include <utility>
#include <vector>

#include "planner/chain.hpp"
#include "planner/steps.hpp"

namespace mdlm::planner {

// An item that may begin at a layer, as the layers around it see it.
struct Arc {
    int32_t count = 1, choice = 0;
    int64_t left = 0;   // bytes that it retains
    int64_t floor = 0;  // bytes that it needs whatever is inside
    int64_t ns = 0;     // what it costs apart from what is inside
};

// Layers that are alike have the same numbers here; units over alike layers share what is computed about them.
class Space {
public:
    explicit Space(const Chain &chain, Cancellation *cancellation = nullptr);

    const Chain &chain() const { return chain_; }
    Cancellation *cancellation() const { return cancellation_; }
    int64_t layers() const { return chain_.size(); }
    // Most layers of a unit; 1: there are none.
    int64_t reach() const { return reach_; }

    // Items that may begin at a layer, none of them needless for the best cost. Policies first, then units by length,
    // in the chain's order.
    const std::vector<Arc> &policies(int64_t layer) const { return policies_[static_cast<size_t>(kind(layer))]; }
    void units(int64_t layer, std::vector<Arc> &out) const;

    // What items that begin at a layer and cover so many have in common, wherever else they have it.
    std::pair<bool, int64_t> alike(int64_t layer, int64_t count) const {
        return {count > 1, count > 1 ? static_cast<int64_t>(node(layer, count)) : int64_t{kind(layer)}};
    }

    // Least bytes that the replay and backward of a unit need; least time inside whatever the bytes.
    int64_t least_bytes(int64_t first, int64_t count) const;
    int64_t least_ns(int64_t first, int64_t count) const;

    // Inside of a unit: least time by bytes above what is retained before the unit, nothing beyond `limit`. Made when
    // first asked for; a limit that is larger than before makes them anew. Nested `inner` levels deep at most.
    const Steps &inside(int64_t first, int64_t count) { return inside(first, count, depth_ - 1); }
    const Steps &inside(int64_t first, int64_t count, int64_t inner);
    void set_limit(int64_t bytes);
    // At most so many steps a unit (0: as many as fit 16 MiB, or 256 where that is more, but no more than fit 64 MiB);
    // then costs inside may be too high by error().
    void set_step_cap(int64_t most);
    int64_t error(int64_t first, int64_t count) const {
        return tables_[static_cast<size_t>(level(count, depth_ - 1))][node(first, count)].error;
    }

    // Items that begin at layer `first`, inside a unit that ends before layer `end`, units nested `inner` levels deep
    // at most. With every policy, also those that are never needed.
    void items_inside(int64_t first, int64_t end, int64_t inner, std::vector<Arc> &out) const;
    // All items of a layer outside of units, with every policy.
    void items_outside(int64_t first, std::vector<Arc> &out) const;
    int64_t nested() const { return depth_ - 1; }

private:
    // What the inside of one stretch of layers costs, by bytes.
    struct CostTable {
        Steps steps;
        int64_t error = 0;
        bool made = false;
    };

    int32_t kind(int64_t layer) const { return kinds_[static_cast<size_t>(layer)]; }
    size_t node(int64_t first, int64_t count) const {
        return static_cast<size_t>(nodes_[static_cast<size_t>(first * reach_ + count - 1)]);
    }
    // Deeper nesting than the number of layers allows changes nothing.
    static int64_t level(int64_t count, int64_t inner) { return inner < count - 2 ? inner : count > 2 ? count - 2 : 0; }
    CostTable &table(int64_t first, int64_t count, int64_t inner) {
        return tables_[static_cast<size_t>(level(count, inner))][node(first, count)];
    }
    void find_kinds();
    void find_nodes();
    void find_least_bytes();
    void make(int64_t first, int64_t count, int64_t inner);
    void policies_inside(int64_t first, int64_t end, bool all, std::vector<Arc> &out) const;
    void units_inside(int64_t first, int64_t end, int64_t inner, std::vector<Arc> &out) const;

    const Chain &chain_;
    Cancellation *cancellation_;
    int64_t reach_ = 1, depth_ = 0;
    std::vector<int32_t> kinds_;                        // by layer: the first type with the same numbers
    std::vector<std::vector<Arc>> policies_;            // by kind
    std::vector<std::vector<int32_t>> inner_policies_;  // by kind: indices of those that may be of use inside a unit
    std::vector<int32_t> nodes_;  // by first and count: an index that alike stretches of layers share
    size_t node_count_ = 0;
    std::vector<int64_t> forward_ns_;                // of all layers before one
    std::vector<int64_t> passed_ns_;                 // the same with the least extra time of each
    std::vector<int64_t> least_rebuild_ns_;          // by kind, with the extra time
    std::vector<std::vector<int64_t>> least_bytes_;  // by nesting and node
    std::vector<std::vector<CostTable>> tables_;     // the same
    int64_t limit_ = -1;
    size_t step_cap_ = SIZE_MAX;
    Merge merge_;
    Steps steps_;
    std::vector<Arc> arcs_;
};

}  // namespace mdlm::planner

// SPDX-License-Identifier: Apache-2.0
// Lower bounds on what any plan costs, from prices on bytes: with w / 2^40 nanoseconds charged for every retained byte,
// the cheapest way through the layers is a shortest path, and what it costs less the price of the whole budget is a
// bound, for every price.
#pragma once
#include <vector>

#include "planner/space.hpp"

namespace mdlm::planner {

// An item that may begin at a layer, with what is inside it.
struct Edge {
    Arc arc;
    const Steps *inner = nullptr;  // of a unit, once known
    int64_t error_ns = 0;          // what is inside may cost less by this
    int64_t low_ns = 0;            // no more than what it costs, inside included
    int64_t tail = 0;              // bytes that it needs or leaves, with those of the loss, where it ends the chain
};
using Edges = std::vector<std::vector<Edge>>;  // by layer

class Bounds {
public:
    // Prices that suit the budget; edges may change afterwards, to others that cost no less.
    Bounds(const Edges &edges, int64_t budget, Cancellation *cancellation)
        : Bounds(edges, std::vector<int64_t>{budget}, cancellation) {}
    // For several budgets; the last one is `the budget` below.
    Bounds(const Edges &edges, const std::vector<int64_t> &budgets, Cancellation *cancellation);

    // Of every plan.
    int64_t all() const { return all(budget_); }
    int64_t all(int64_t budget) const;
    // May a plan with this item at this layer cost no more than `most`, with the budget or another one?
    bool may(int64_t layer, const Edge &edge, int64_t most) const { return may(layer, edge, most, budget_); }
    bool may(int64_t layer, const Edge &edge, int64_t most, int64_t budget) const;
    // For each price, the least that a plan with one of some items can cost, all its bytes paid for.
    struct Priced {
        int64_t layer;
        const Edge *edge;
    };
    void priced_with(const std::vector<Priced> &items, std::vector<__int128> &out) const;
    // What a plan costs at least with such a price list and a budget.
    int64_t at_least(const std::vector<__int128> &priced, int64_t budget) const;
    // Least bytes that any plan has retained before a layer.
    int64_t least_before(int64_t layer) const { return least_before_[static_cast<size_t>(layer)]; }
    // For each step, of what remains from `layer` on: no plan that goes on so costs less.
    void through(int64_t layer, const Steps &steps, std::vector<int64_t> &out) const;
    // For each step of what remains from `layer` on: by how much a plan with it costs more, at some price on bytes,
    // than the cheapest one.
    void slack(int64_t layer, const Steps &steps, std::vector<int64_t> &out) const;

private:
    using Wide = __int128;
    struct Line {
        int64_t price;
        std::vector<Wide> before, after;  // shortest path to a layer, and from it to the end
    };
    Wide shortest_after(int64_t price, std::vector<Wide> *after, int64_t *bytes) const;
    Line make_line(int64_t price) const;

    const Edges &edges_;
    Cancellation *cancellation_;
    int64_t budget_;
    std::vector<int64_t> least_before_;
    std::vector<Line> lines_;  // prices rise
};

}  // namespace mdlm::planner

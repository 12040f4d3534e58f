// SPDX-License-Identifier: Apache-2.0
// The exact planner on an abstract chain of layers: it knows bytes and nanoseconds, no blocks, devices or settings.
//
// Chain: x_i = F_i(x_{i-1}), i = 0 .. L-1 here. Layer i owns its input; what it retains from its forward to its
// backward includes that input in some form. A plan partitions the layers into items: a single layer with one of its
// policies, or a unit of at least two consecutive layers that retains only its first input and runs them again in
// backward, itself planned the same way, one level less deep.
//
// Retained bytes are a stack that forwards push and backwards pop. With S bytes below it, an item needs, one tape in
// flight:
//   single  S + f in forward, S + b in backward; leaves s
//   unit    first pass: S + n_first + (stays ? 0 : sigma), and S + sigma + n_k of its other layers; leaves sigma
//           backward (sigma given back first): restoring S + (stays ? 0 : sigma) + a_before + g_last, then its inner
//           items by these rules, every forward with g_last on top
//   loss    S_L + loss_bytes
// and the peak is fixed_bytes + the largest of these. It costs: single r; unit rho + F of every layer run forward
// again, the last layer of a unit only its c, + what its inner items cost.
//
// Several tapes in flight (k > 1), finished in any order: each tape has a stack of its own, all share one slab above
// them, and
//   peak = fixed_bytes + k S_L + max(largest of need - left over all items, loss_bytes),
// need being the most bytes that the item uses above S and left what it leaves (s or sigma). A unit is an item like any
// other: its own frame is given back before its replay, stays the tape's, and is room for that replay, as a single
// layer's frame is room for its scratch.
#pragma once
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/cancellation.hpp"

namespace mdlm::planner {

// Where a policy may stand. A layer that is run alone and one inside of a unit may differ in what they need, and the
// last layer of a unit may have a policy that no other has. In JSON all may stand everywhere.
enum Role : uint32_t { role_alone = 1, role_inside = 2, role_last = 4, role_any = 7 };

// What a policy of one layer needs and costs: bytes and nanoseconds, none negative.
struct PolicyCost {
    std::string name;
    int64_t saved_bytes = 0;  // s: retained from the end of forward to the end of backward, the input's form included
    int64_t extra_ns = 0;     // r: beyond saving everything
    // f: most alive in forward above what earlier layers retain, x_{i-1} and x_i included; >= s.
    int64_t forward_bytes = 0;
    int64_t backward_bytes = 0;  // b: the same in replay and backward; >= s
    int64_t rebuild_ns = 0;      // c: makes s again out of x_{i-1} without x_i, for the last layer of a unit
    uint32_t roles = role_any;
};

// What a unit retains of its first input.
struct UnitInput {
    std::string name;
    int64_t saved_bytes = 0;  // sigma
    int64_t restore_ns = 0;   // rho
    bool stays = false;       // the input itself stays; else it is made again out of the form
};

struct LayerType {
    std::string name;
    int64_t boundary_bytes = 0;          // a: of the output x_i
    int64_t grad_boundary_bytes = 0;     // g: of its gradient
    int64_t forward_ns = 0;              // F
    int64_t unsaved_forward_bytes = 0;   // n: most alive in a forward that saves nothing
    std::vector<PolicyCost> policies;    // at least one
    std::vector<UnitInput> unit_inputs;  // forms that a unit beginning here may retain; none: no unit begins here
};

struct Chain {
    std::vector<LayerType> types;
    std::vector<int32_t> layers;  // by layer, an index into types
    int64_t input_bytes = 0;      // a of what enters the first layer
    int64_t in_flight = 1;        // k
    bool slab_apart = false;      // with one tape, too, the stack has a place of its own, as with several
    int64_t fixed_bytes = 0;      // taken off the budget first, part of every peak
    int64_t loss_bytes = 0;       // alive above S_L between forward and backward
    int64_t max_unit_depth = 0;   // 0: single layers only; 1: units of single layers; ...
    int64_t max_unit_layers = 0;  // most layers of a unit; 0: most_unit_layers. Past the chain's length it means that

    int64_t size() const { return static_cast<int64_t>(layers.size()); }
    bool one_stack() const { return in_flight == 1 && !slab_apart; }
    const LayerType &type(int64_t layer) const {
        return types[static_cast<size_t>(layers[static_cast<size_t>(layer)])];
    }
    int64_t bytes_before(int64_t layer) const { return layer == 0 ? input_bytes : type(layer - 1).boundary_bytes; }
};

inline constexpr int64_t most_layers = 4097, most_choices = 1024, most_in_flight = 65536, most_unit_layers = 64;

// An Error that names the place unless sizes are in range, nothing is negative, some policy of every layer may stand
// alone, and no sum that a plan of the chain can have passes 2^61: nothing overflows after it. solve, frontier and
// simulate start with it.
void check(const Chain &chain);

// One item of a plan. A tree as a list: an item is followed by all items inside it.
struct PlanItem {
    int32_t first = 0, count = 1;  // layers; count > 1: a unit
    int32_t choice = 0;            // policies[choice] of a single layer, unit_inputs[choice] of a unit's first layer
    int32_t inside = 0;            // items that follow and lie in this one, at any depth
    bool operator==(const PlanItem &) const = default;
};
using ChainPlan = std::vector<PlanItem>;

// What a whole plan needs and costs.
struct PlanCost {
    int64_t peak_bytes = 0, extra_ns = 0;
};

struct Result {
    bool feasible = false;
    bool optimal = false;                  // no plan of the space costs less; always so when gap_ns is 0
    int64_t gap_ns = 0;                    // no plan of the space costs less than extra_ns - gap_ns
    int64_t peak_bytes = 0, extra_ns = 0;  // of the plan, fixed_bytes included
    int64_t minimum_budget_bytes = 0;      // the smallest budget that any plan fits
    ChainPlan plan;                        // empty when infeasible
};

struct FrontierPoint {
    int64_t peak_bytes = 0, extra_ns = 0;
    ChainPlan plan;
};
struct Frontier {
    bool optimal = true;
    int64_t gap_ns = 0;                 // at every budget, no plan costs less than the frontier's by more
    std::vector<FrontierPoint> points;  // peaks rise, times fall
};

// The plan with the least extra time whose peak is at most budget_bytes; of those the one with the lowest peak; of
// those the first in the order of their lists, policies before units, each by index, shorter units before longer.
// Exact, unless more than label_cap points would have to be kept for a layer: then the result carries the gap it was
// proven to. 0: as many as fit 48 MiB, at least 2048. cancellation (null: nobody is asked)
// is polled all along, in both searches.
Result solve(const Chain &chain, int64_t budget_bytes, int64_t label_cap = 0, Cancellation *cancellation = nullptr);
// All plans that are best at some budget. point_cap as above; 0: as many as fit 128 MiB, at most 2^16. Of the points as
// many are kept as have plans of 64 MiB in all; without plans, which stay empty then, point_cap of them.
Frontier frontier(const Chain &chain, int64_t point_cap = 0, bool with_plans = true,
                  Cancellation *cancellation = nullptr);
// The peak and the extra time of a plan, by the rules on top. An Error when it is no plan of the chain's space.
PlanCost simulate(const Chain &chain, const ChainPlan &plan);

// JSON, format "mdlm-chain" version 1. An Error (FORMAT or OVERFLOW) names the place.
Chain read_chain(std::string_view json);
std::string write_chain(const Chain &chain);
std::string to_json(const Chain &chain, const Result &result);
std::string to_json(const Chain &chain, const Frontier &frontier, Cancellation *cancellation = nullptr);
// {"layer": 0, "policy": "X"} or {"unit": [0, 1], "input": "keep", "inner": [...]}, in a list.
std::string to_json(const Chain &chain, const ChainPlan &plan);

}  // namespace mdlm::planner

// SPDX-License-Identifier: Apache-2.0
// The plan for a budget: a block as an abstract chain for the exact solver (planner/chain.hpp), and what it finds as
// policies again.
//
// What a layer needs and leaves are the packed heights that make_block_plan will come to, so a plan's peak is known to
// the byte before it is laid out. The chain is exact for blocks whose units keep their input on the device; where it
// can only bound a peak from above:
//  - a layer's output is taken to stand in the next frame even where the next unit's input is a share or on the host
//  and it stands in a slot;
//  - the first layer of a unit whose input is a share or on the host is taken to have the whole input in its inner
//  frame;
//  - an op that makes what is always kept is taken to run again where its layer does;
//  - a ring of two staging slots is taken off the budget even where one unit alone uses the host.
// Every answer is laid out once, and its peak is that of the layout.
#pragma once
#include <memory>

#include "plan/policy_enumerator.hpp"
#include "plan/times.hpp"
#include "planner/chain.hpp"

namespace mdlm {

struct BudgetAnswer {
    bool feasible = false, optimal = false;
    int64_t gap_ns = 0, extra_ns = 0;
    int64_t peak_bytes = 0;        // of the arena, laid out
    int64_t chain_peak_bytes = 0;  // as the chain has it
    int64_t minimum_bytes = 0;     // smallest peak of any plan
    Policies policies;
};
struct BudgetPoint {
    int64_t peak_bytes = 0, extra_ns = 0;
};

struct BudgetFrontier {
    std::vector<BudgetPoint> points;  // peaks rise, times fall
    int64_t gap_ns = 0;               // at no budget is there a plan that takes more than this less
};

class BudgetPlanner {
public:
    // The policies of `in` do not matter. The first host_layers of the items that settings
    // are about may use the host. cancellation is asked here and
    // in every search.
    BudgetPlanner(BlockPlanInput in, DeviceTable table, int64_t host_layers, Cancellation *cancellation = nullptr);

    BudgetAnswer solve(int64_t arena_bytes) const;
    // Peaks rise, times fall. With several tapes only some sizes of staging rings are tried.
    BudgetFrontier frontier() const;

    // A part of the space of plans: what may be used beside keep and replay, shares of inputs, and the host by staging
    // slots of so many bytes (0: not at all).
    struct Variant {
        bool shard = false;
        int64_t staging = 0;
    };
    // With every size of ring that some layer fills, or a short list: an input, the largest tensor, all of a layer.
    std::vector<Variant> variants(bool every_ring) const;
    planner::Chain chain(const Variant &variant) const;
    Policies policies(const Variant &variant, const planner::ChainPlan &plan) const;
    // No plan has a lower peak, whatever it keeps: evaluation passes need as much.
    int64_t floor_bytes() const;
    const BlockPlanInput &input() const { return in_; }

private:
    // A policy that items of a type may have, and what it needs of a variant.
    struct PolicyOption {
        planner::PolicyCost numbers;
        LayerPolicy policy;
        int64_t host = 0;
        bool shard = false, one_on_host = false;
    };
    // Items that are alike. All that any variant allows is here.
    struct ItemType {
        planner::LayerType numbers;  // its policies and unit inputs are those of a variant
        std::vector<PolicyOption> options;
        bool in_units = false, may_host = false;
        const Program *program = nullptr;
        BufferId input_id = no_buffer;
        int64_t boundary = 0, input = 0, share = 0;  // bytes of its input, of that in its frame, and of a share
        int64_t backward_ns = 0;
        int64_t slack_ns = 0;  // PolicyEnumerator::pareto
    };
    struct ItemTypeKey {
        const Differentiated *layer;
        bool in_units, has_shares, borrowed, next_in_slab, may_host;
        auto operator<=>(const ItemTypeKey &) const = default;
    };
    // In which storage a unit may keep its input.
    struct UnitForm {
        Storage storage;
        planner::UnitInput numbers;
    };
    ItemType make_type(int64_t item, const ItemTypeKey &key, const PolicyEnumerator &enumerator) const;
    LayoutKey key_alone(const ItemTypeKey &key) const;
    std::vector<MeasuredPolicy> add_alone(ItemType &type, const PolicyEnumerator &enumerator,
                                          const ItemTypeKey &key) const;
    void add_on_host(ItemType &type, const PolicyEnumerator &enumerator, const LayoutKey &base,
                     const MeasuredPolicy &choice) const;
    void add_in_units(ItemType &type, const PolicyEnumerator &enumerator, const ItemTypeKey &key,
                      std::vector<MeasuredPolicy> alone) const;
    std::vector<const PolicyOption *> options_of(const ItemType &type, const Variant &variant) const;
    std::vector<UnitForm> forms_of(const ItemType &type, const Variant &variant) const;
    BudgetAnswer solve(int64_t arena_bytes, const Variant &variant) const;

    BlockPlanInput in_;
    DeviceTable table_;
    Cancellation *cancellation_;
    bool on_frame_;  // the slab begins right above the frame in use
    bool shards_ = false;
    std::vector<std::shared_ptr<const Differentiated>> layers_;
    std::vector<ItemType> types_;
    std::vector<int32_t> type_of_;  // by item
    int64_t fixed_ = 0, fixed_with_shares_ = 0;
    int64_t passing_ = 0, states_ = 0;  // of an evaluation, with its call's state; of the tapes' calls
    int64_t kept_ = 0;                  // of one tape, what no policy may replay
    // Of all items: no plan that could keep any tensors takes less than one of the chain's by more.
    int64_t slack_ns_ = 0;
};

}  // namespace mdlm

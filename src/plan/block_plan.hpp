// SPDX-License-Identifier: Apache-2.0
// The whole block laid out before anything runs: which ops run in which order, and where every byte is.
//
//   arena = [ x slots | dx slots | staging slots ]  fixed
//           [ saved stack of each tape ]            what no policy may replay, then frames: forward pushes, backward
//           pops [ slab ]                                scratch; it reaches down to the frame in use where no other
//           stack is between
//
// With share_scratch only the stacks are the block's own; fixed and slab are one piece elsewhere.
#pragma once
#include <map>
#include <memory>
#include <vector>

#include "plan/layout.hpp"
#include "plan/policy.hpp"

namespace mdlm {

// Where something stands in a block's memory.
struct Place {
    enum class Kind {
        none,
        caller,  // the caller's x, y, dy or dx
        x_slot,
        dx_slot,
        staging,  // offset is a slot's number while composing; then they are `fixed`
        fixed,    // from the start of the arena
        stack,    // from the start of the tape's stack
        slab      // from above all stacks
    } kind = Kind::none;
    int64_t offset = 0;
};

// One thing that running the block does: an item's forward or backward, or a transfer.
struct PlanEntry {
    enum class Kind {
        copy_input,   // caller's x -> x
        forward,      // schedule->forward
        backward,     // schedule->backward
        to_host,      // staged values -> the tape's host storage
        from_host,    // and back
        shard_input,  // this rank's share of x -> frame
        gather_input  // frames of all ranks -> x
    } kind = Kind::forward;
    int64_t item = 0;
    bool replay = false;  // a forward during backward
    const Schedule *schedule = nullptr;
    const Layout *layout = nullptr;
    Place frame, kept, slab, x, y, dy, dx, staging;
    int64_t host = 0;    // offset of the item in the tape's host storage
    uint32_t slots = 0;  // staging slots in which it reads or writes, as bits
};
inline constexpr int64_t staging_slots = 2;

// What one item of a plan needs and does, at the reserved shape.
struct ItemUsage {
    int64_t saved_bytes = 0, host_bytes = 0;
    int64_t base = 0;                               // of its unit's frame in the stack
    int64_t forward_bytes = 0, backward_bytes = 0;  // most used above what earlier units saved
    int64_t most_alive_bytes = 0;                   // of the larger of the two
    int64_t forward_flops = 0, backward_flops = 0, replayed_flops = 0, replayed_ops = 0;
};

struct BlockPlanInput {
    Chain chain;
    Policies policies;
    std::vector<std::vector<char>> trains;  // by item and ParamId
    Traits traits;
    Extent bound;
    int64_t in_flight = 1, group_size = 1;
    bool evaluate_in_flight = false, input_requires_grad = true, borrow_input = false;
    int64_t call_state_bytes = 0;  // what the device has of each call in its own memory
    bool share_scratch = false;    // fixed and slab lie in memory that other blocks use too
    // Where the slab begins for what runs with a frame: right above it, since no other tape's stack and no border of
    // memory lies between. Else above all stacks.
    bool slab_on_frame() const { return in_flight == 1 && !share_scratch; }
};

// The one place where a shape becomes bounds and options of a plan: a plan to look at and a reservation must not
// differ.
BlockPlanInput plan_input(const Config &config, const mdlm_shape &shape, Chain chain, Policies policies,
                          std::vector<std::vector<char>> trains, const Traits &traits);

// What kernels read of one call where they run: how it draws (DrawState), and the bounds of the documents of a
// sequence, if there are any (seq 0: none).
int64_t call_state_bytes(int64_t seq);
// A layer boundary, and the share of it that a rank keeps where it is sharded, as they are allocated.
int64_t input_bytes(const BlockPlanInput &in, int64_t item);
int64_t share_bytes(const BlockPlanInput &in, int64_t item);
// What backward is of each item: frozen layers at the beginning have none. Layers that are alike share one.
std::vector<std::shared_ptr<const Differentiated>> differentiate_items(const BlockPlanInput &in);

struct BlockPlan {
    BlockPlanInput input;
    std::vector<std::shared_ptr<const Differentiated>> layers;  // by item
    std::vector<PlanEntry> forward, backward, evaluate;
    std::vector<ItemUsage> items;
    int64_t fixed_bytes = 0;
    int64_t stack_bytes = 0;  // of one tape
    int64_t slab_origin = 0;  // Place::slab counts from here, above all stacks; below it offsets are negative
    // Where the state of a call stands: of a forward with a tape at the start of its stack.
    Place call_state{Place::Kind::stack, 0}, evaluation_state;
    // Most bytes above the frames of what is saved: the highest slab of any entry, with the inner frames below it in a
    // unit's replay. So fixed_bytes + scratch_bytes <= peak_bytes <= fixed_bytes + in_flight * stack_bytes +
    // scratch_bytes.
    int64_t scratch_bytes = 0;
    int64_t peak_bytes = 0;
    int64_t host_bytes = 0;  // of one tape
    int64_t own_bytes() const { return input.share_scratch ? input.in_flight * stack_bytes : peak_bytes; }
    int64_t shared_bytes() const { return peak_bytes - own_bytes(); }
    bool wants_dx = false;

    // Schedules and layouts, shared by layers that are alike; made when first asked for.
    const Schedule *schedule(int64_t item, const LayerPolicy &policy, bool save, bool in_unit = false);
    const Layout *layout(const Schedule *schedule, const LayoutKey &key);
    struct ScheduleKey {
        const Differentiated *layer;
        LayerPolicy policy;
        bool save, in_unit;
        auto operator<=>(const ScheduleKey &) const = default;
    };
    std::map<ScheduleKey, std::unique_ptr<Schedule>> schedules;
    std::map<std::pair<const Schedule *, LayoutKey>, std::unique_ptr<Layout>> layouts;
};

std::unique_ptr<BlockPlan> make_block_plan(BlockPlanInput input);

}  // namespace mdlm

// SPDX-License-Identifier: Apache-2.0
// Runs the entries of a block plan. It resolves places to addresses and counts; what runs and where was decided before.
#pragma once
#include "block/observing.hpp"
#include "block/params.hpp"
#include "block/states.hpp"
#include "plan/block_plan.hpp"

namespace mdlm {

struct Counts {
    uint64_t saved_bytes = 0, host_bytes = 0, high_water_bytes = 0;
    uint64_t forward_ops = 0, forward_flops = 0, backward_ops = 0, backward_flops = 0;
    uint64_t replayed_ops = 0, replayed_flops = 0, replayed_matmul_flops = 0;
    uint64_t forward_collectives = 0, forward_collective_bytes = 0, backward_collectives = 0,
             backward_collective_bytes = 0;
    uint64_t replayed_collectives = 0, replayed_collective_bytes = 0, gradient_collectives = 0,
             gradient_collective_bytes = 0;
};

// What the places of a plan are bound to while one forward or backward runs, and all else that it works on.
struct RunBindings {
    char *arena = nullptr;
    int64_t stack = 0;       // offset of the tape's stack in the arena
    char *shared = nullptr;  // where slots and slab lie, when not in the arena
    char *host = nullptr;    // the tape's host storage
    Events *events = nullptr;
    const void *x = nullptr;  // the caller's
    void *y = nullptr;
    const void *dy = nullptr;
    void *dx = nullptr;
    const void *const *sides = nullptr;  // what the caller gives beside x, by Chain::sides
    RunState state;                      // its layer, params, grads and states are set for each entry
    const Params *params = nullptr;
    const States *states = nullptr;
};

// Events of a reservation: two for each staging slot, one for each image of a call's state.
enum class EventOf { slot_used, slot_moved, image_copied };
int32_t event_number(EventOf what, int64_t index);

char *address_of(const BlockPlan &plan, const RunBindings &bindings, const Place &place);

class Runner {
public:
    Runner(Engine &engine, const BlockPlan &plan, RunBindings &bindings, Counts &counts)
        : engine_(engine), observing_(engine), plan_(plan), b_(bindings), counts_(counts),
          asked_(engine.group.size() == 1) {}
    // Around the entries of a call.
    void begin();
    void run(const PlanEntry &entry);
    void end();

private:
    char *address(const Place &place) const { return address_of(plan_, b_, place); }
    char *address(const PlanEntry &entry, int32_t value) const;
    char *side(const PlanEntry &entry, BufferId buffer) const;
    void run_entry(const PlanEntry &entry);
    void run_ops(const PlanEntry &entry);
    void transfer(const PlanEntry &entry, bool to_host);
    void count_saved(const PlanEntry &entry);
    void count(const Cost &cost, bool replay, bool backward);
    const Buffer &input_of(const PlanEntry &entry) const;
    void touch(const char *at, int64_t bytes);
    int64_t bytes_of(const PlanEntry &entry, int32_t value) const;
    void may_be_cancelled(const char *op, int64_t item);
    template <class F>
    void observed(const PlanEntry &entry, const char *op, int32_t value, int64_t bytes, F &&move);

    Engine &engine_;
    Observing observing_;
    const BlockPlan &plan_;
    RunBindings &b_;
    Counts &counts_;
    bool asked_;  // just now: when the call began, if there was nobody to wait for since
};

}  // namespace mdlm

// SPDX-License-Identifier: Apache-2.0
// The predicted peak of every rank, proven as for one rank: by executors of the test's own, and by the budget.
#include <algorithm>
#include <cstdio>

#include "../property/arena_executor.hpp"
#include "../property/debug_executor.hpp"
#include "api/objects.hpp"
#include "cases.hpp"
#include "support/hold.hpp"
#include "support/repro.hpp"

namespace parallel {
namespace {

using namespace property;
using namespace property::memory;
using mdlm_test::expect_same;
using mdlm_test::hold;

constexpr uint64_t draws = mdlm_test::sanitized ? 8 : 60;

Draw draw_of(uint64_t seed, int size) {
    const Draw d = draw_for_group(seed, size);
    return seed % 2 == 0 ? at_the_bound(d) : d;
}

struct Seen {
    int shards = 0, partial = 0, workspaces = 0, sequence_parallel = 0, bound = 0, top_written = 0;
};

// What a group adds to a plan: shares of inputs, buffers of partial gradients, room to sort what a collective moves.
void look(const World &world, Seen &seen) {
    bool partial = false, workspace = false, shards = false;
    for (const mdlm::PlanEntry &e : world.plan().forward)
        shards = shards || e.kind == mdlm::PlanEntry::Kind::shard_input;
    for (const auto &[key, schedule] : world.plan().schedules)
        for (const auto *steps : {&schedule->forward, &schedule->backward})
            for (const mdlm::ScheduledOp &s : *steps) {
                const std::string name = schedule->op(s).name();
                partial = partial || name == "all_reduce_gradients";
                workspace = workspace || (s.workspace >= 0 && (name == "all_gather" || name == "reduce_scatter"));
            }
    seen.shards += shards, seen.partial += partial, seen.workspaces += workspace;
    seen.sequence_parallel += world.config().sequence_parallel;
}

std::string executors(mdlm_comm *comm, int rank, int size) {
    Seen seen;
    for (uint64_t seed = 0; seed < draws; ++seed) {
        const Draw d = draw_of(seed, size);
        const auto fails = [&](const std::string &what) { return what + "\n  " + describe(d); };
        World world(d, make_device(seed % 4 < 2 ? MDLM_DEVICE_CPU : MDLM_DEVICE_REFERENCE, d.threads), comm->comm);
        const property::memory::Outcome expected = world.run();
        const Lifetimes lifetimes = derive(world);
        const int64_t peak = world.plan().peak_bytes;
        const DebugRun apart = run_apart(world, lifetimes);
        if (apart.most_alive > peak)
            return fails("bytes alive " + std::to_string(apart.most_alive) + ", predicted " + std::to_string(peak));
        if (apart.outcome != expected) return fails("the debug executor's bits are others");
        const ArenaRun run = run_in_arena(world, lifetimes);
        if (!run.fault.empty()) return fails(run.fault);
        if (run.outcome != expected) return fails("the bits in the arena are others");
        if (run.high_water > peak)
            return fails("high water " + std::to_string(run.high_water) + ", predicted " + std::to_string(peak));
        if (world.engine().high_water_bytes != run.high_water)
            return fails("high_water_bytes of the block's run " + std::to_string(world.engine().high_water_bytes) +
                         ", step by step " + std::to_string(run.high_water));
        look(world, seen);
        if (seed % 2 == 1) continue;
        if (run.high_water != peak)
            return fails("high water at the reserved shape " + std::to_string(run.high_water) + ", predicted " +
                         std::to_string(peak));
        if (run.top_is_tensor && !run.top_written)
            return fails("the highest granule is a tensor's, and nothing was written there");
        ++seen.bound, seen.top_written += run.top_written;
    }
    if (rank == 0)
        std::printf("parallel: %d plans at t = %d in watched memory: %d with partial gradients, %d with shares of "
                    "inputs, %d sequence "
                    "parallel, %d with workspaces of "
                    "collectives; the highest granule written in %d of %d at the reserved shape\n",
                    int(draws), size, seen.partial, seen.shards, seen.sequence_parallel, seen.workspaces,
                    seen.top_written, seen.bound);
    const bool enough = seen.partial * 4 > int(draws) && seen.shards * 10 > int(draws) &&
                        seen.workspaces * 20 > int(draws) && seen.top_written * 10 >= seen.bound * 8;
    return enough || mdlm_test::sanitized ? "" : "the draws do not cover what a group adds";
}

template <class T, void (*Destroy)(T *)>
struct Handle {
    T *at = nullptr;
    Handle() = default;
    Handle(const Handle &) = delete;
    ~Handle() { Destroy(at); }
    operator T *() const { return at; }
};

// One rank's max_bytes alone refuses the reservation on every rank, and leaves the group as it was.
std::string budget(mdlm_comm *comm, int rank, int size) {
    for (uint64_t seed = 0; seed < draws; seed += 2) {
        Draw d = at_the_bound(draw_for_group(seed, size));
        Handle<mdlm_context, mdlm_context_destroy> context;
        Handle<mdlm_block, mdlm_block_destroy> block;
        Handle<mdlm_plan, mdlm_plan_destroy> plan;
        mdlm_context_desc desc = MDLM_CONTEXT_DESC_INIT;
        desc.num_threads = d.threads, desc.comm = comm;
        OK(mdlm_context_create(&desc, &context.at));
        OK(mdlm_block_create(context, &d.config, &block.at));
        OK(mdlm_block_plan(block, &d.shape, &plan.at));
        OK(edit(d, plan));
        mdlm_memory memory = MDLM_MEMORY_INIT;
        OK(mdlm_plan_memory(plan, &memory));
        const std::string what = describe(d) + ": ";
        const auto refused = [&](bool here) {
            d.shape.max_bytes = here ? memory.peak_bytes - 1 : memory.peak_bytes;
            const mdlm_status status = mdlm_block_reserve(block, &d.shape, plan);
            expect_same(what + "status of a reservation with a byte less", status,
                        here ? MDLM_ERROR_BUDGET : MDLM_ERROR_COMM);
            hold(std::string(mdlm_last_error()).find(std::to_string(memory.peak_bytes)) != std::string::npos,
                 what + mdlm_last_error());
        };
        refused(true);                                       // on all ranks
        refused(rank == static_cast<int>(seed / 2) % size);  // on one, and the others are told
        d.shape.max_bytes = memory.peak_bytes;
        OK(mdlm_block_reserve(block, &d.shape, plan));
        OK(mdlm_params_init(block, seed));

        const MicroBatch &micro = d.micro[0];
        mdlm_batch batch = micro.batch;
        mdlm_io io = MDLM_IO_INIT;
        OK(mdlm_block_io(block, &batch, &io));
        Bytes x(int64_t(io.bytes)), y(int64_t(io.bytes)), dy(int64_t(io.bytes)), dx(int64_t(io.bytes));
        std::memset(x.get(), 0, io.bytes), std::memset(dy.get(), 0, io.bytes);
        OK(mdlm_block_forward(block, &batch, x.get(), nullptr, y.get()));
        mdlm_context_stats stats = MDLM_CONTEXT_STATS_INIT;
        OK(mdlm_context_get_stats(context, &stats));
        uint64_t highest = stats.high_water_bytes;
        for (int32_t i = 0; i < d.shape.in_flight;
             ++i) {  // one after the other; with several the slab stands above all their stacks
            Handle<mdlm_tape, mdlm_tape_destroy> tape;
            OK(mdlm_tape_create(block, &tape.at));
            OK(mdlm_block_forward(block, &batch, x.get(), tape, y.get()));
            OK(mdlm_block_backward(block, tape, nullptr, dy.get(),
                                   d.shape.input_requires_grad != 0 ? dx.get() : nullptr));
            mdlm_tape_stats of_tape = MDLM_TAPE_STATS_INIT;
            OK(mdlm_tape_get_stats(tape, &of_tape));
            highest = std::max(highest, of_tape.high_water_bytes);
        }
        OK(mdlm_context_get_stats(context, &stats));
        expect_same(what + "arena_bytes", stats.arena_bytes, memory.peak_bytes);
        expect_same(what + "high_water_bytes", stats.high_water_bytes, memory.peak_bytes);
        expect_same(what + "highest of evaluation and tapes", highest, memory.peak_bytes);
    }
    return "";
}

}  // namespace

std::vector<Case> memory_cases() {
    std::vector<Case> list;
    for (const int t : {2, 4}) {
        list.push_back({"memory: watched executors on every rank, t = " + std::to_string(t), t, executors});
        list.push_back({"memory: the peak as budget on every rank, t = " + std::to_string(t), t, budget});
    }
    return list;
}

}  // namespace parallel

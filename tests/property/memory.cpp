// SPDX-License-Identifier: Apache-2.0
// The predicted peak, proven from outside: by an executor that never looks at the plan's offsets, in an arena whose
// every byte is watched, and by the budget.
#include <doctest/doctest.h>

#include <algorithm>
#include <cstdio>

#include "arena_executor.hpp"
#include "debug_executor.hpp"
#include "support/checks.hpp"
#include "support/repro.hpp"

namespace {

using namespace property;
using namespace property::memory;

constexpr uint64_t draws = mdlm_test::sanitized ? 80 : 400;

// Every second case at the bound; the two devices in turn.
Draw draw_of(uint64_t seed) { return seed % 2 == 0 ? at_the_bound(draw(seed)) : draw(seed); }
mdlm_device_kind device_of(uint64_t seed) { return seed % 4 < 2 ? MDLM_DEVICE_CPU : MDLM_DEVICE_REFERENCE; }

}  // namespace

TEST_CASE("the debug executor: at most the predicted bytes are alive, and the bits are the block's") {
    double worst = 1.0, sum = 0.0;
    int64_t measured = 0, hosted = 0, in_place = 0;
    uint64_t worst_seed = 0;
    for (uint64_t seed = 0; seed < draws; ++seed) {
        const Draw d = draw_of(seed);
        mdlm_test::repro(describe(d));
        INFO(describe(d));
        World world(d, make_device(device_of(seed), d.threads));
        const Outcome expected = world.run();
        const Lifetimes lifetimes = derive(world);
        const DebugRun run = run_apart(world, lifetimes);
        CHECK(run.most_alive <= world.plan().peak_bytes);
        CHECK(run.outcome == expected);
        hosted += world.plan().host_bytes > 0;
        for (const auto &[key, schedule] : world.plan().schedules)
            for (const mdlm::Value &v : schedule->values) in_place += v.same_as >= 0;
        if (seed % 2 == 1 || !fills_tapes(d)) continue;  // the prediction is for the bound
        const double loss = static_cast<double>(world.plan().peak_bytes) / static_cast<double>(run.most_alive);
        if (loss > worst) worst = loss, worst_seed = seed;
        sum += loss, ++measured;
    }
    std::printf("memory: predicted / alive over %lld draws at the reserved shape: mean %.3f, worst %.3f (draw %llu)\n",
                static_cast<long long>(measured), sum / static_cast<double>(measured), worst,
                static_cast<unsigned long long>(worst_seed));
    CHECK(measured > static_cast<int64_t>(draws) / 4);
    CHECK(hosted > static_cast<int64_t>(draws) / 10);
    CHECK(in_place > 0);
}

TEST_CASE("the arena: what nothing needs is NaN, nothing else is written, and the highest granule is") {
    int64_t at_bound = 0, top_written = 0;
    for (uint64_t seed = 0; seed < draws; ++seed) {
        const Draw d = draw_of(seed);
        mdlm_test::repro(describe(d));
        INFO(describe(d));
        World world(d, make_device(device_of(seed), d.threads));
        const Outcome expected = world.run();
        const ArenaRun run = run_in_arena(world, derive(world));
        CHECK(run.fault == "");
        CHECK(run.outcome == expected);
        const int64_t peak = world.plan().peak_bytes;
        CHECK(run.high_water <= peak);
        CHECK(world.engine().high_water_bytes == run.high_water);
        if (seed % 2 == 1) continue;
        INFO("highest: ", run.top);
        CHECK(run.high_water == peak);
        ++at_bound;
        top_written += run.top_written;
        if (run.top_is_tensor) CHECK(run.top_written);
    }
    CHECK(top_written >= at_bound * 9 / 10);
    std::printf("memory: the highest granule was written in %lld of %lld draws at the reserved shape\n",
                static_cast<long long>(top_written), static_cast<long long>(at_bound));
}

TEST_CASE("the predicted peak as budget runs, one byte less is refused with the number") {
    int64_t runs = 0, by_tape = 0;
    for (uint64_t seed = 0; seed < draws; seed += 4) {
        Draw d = at_the_bound(draw(seed));
        mdlm_test::repro(describe(d));
        INFO(describe(d));
        mdlm_context *context = nullptr;
        mdlm_block *block = nullptr;
        mdlm_plan *plan = nullptr;
        mdlm_context_desc desc = MDLM_CONTEXT_DESC_INIT;
        desc.num_threads = d.threads;
        REQUIRE_OK(mdlm_context_create(&desc, &context));
        REQUIRE_OK(mdlm_block_create(context, &d.config, &block));
        REQUIRE_OK(mdlm_block_plan(block, &d.shape, &plan));
        REQUIRE_OK(edit(d, plan));
        mdlm_memory memory = MDLM_MEMORY_INIT;
        REQUIRE_OK(mdlm_plan_memory(plan, &memory));
        d.shape.max_bytes = memory.peak_bytes - 1;
        CHECK_FAILS(mdlm_block_reserve(block, &d.shape, plan), MDLM_ERROR_BUDGET,
                    std::to_string(memory.peak_bytes).c_str());
        d.shape.max_bytes = memory.peak_bytes;
        REQUIRE_OK(mdlm_block_reserve(block, &d.shape, plan));
        REQUIRE_OK(mdlm_params_init(block, seed));

        const int64_t bytes = d.micro[0].elements(d.config.hidden_size) * static_cast<int64_t>(d.element());
        Bytes x(bytes), y(bytes), dy(bytes), dx(bytes);
        std::memset(x.get(), 0, size_t(bytes)), std::memset(dy.get(), 0, size_t(bytes));
        mdlm_batch batch = d.micro[0].batch;
        mdlm_tape *tape = nullptr;
        REQUIRE_OK(mdlm_block_forward(block, &batch, x.get(), nullptr, y.get()));
        mdlm_context_stats stats = MDLM_CONTEXT_STATS_INIT;
        REQUIRE_OK(mdlm_context_get_stats(context, &stats));
        uint64_t highest = stats.high_water_bytes;         // of the evaluation; the rest from the tapes
        for (int32_t i = 0; i < d.shape.in_flight; ++i) {  // with several tapes the slab stands above all their stacks
            REQUIRE_OK(mdlm_tape_create(block, &tape));
            REQUIRE_OK(mdlm_block_forward(block, &batch, x.get(), tape, y.get()));
            REQUIRE_OK(mdlm_block_backward(block, tape, nullptr, dy.get(),
                                           d.shape.input_requires_grad != 0 ? dx.get() : nullptr));
            mdlm_tape_stats of_tape = MDLM_TAPE_STATS_INIT;
            REQUIRE_OK(mdlm_tape_get_stats(tape, &of_tape));
            by_tape += of_tape.high_water_bytes == memory.peak_bytes && highest < memory.peak_bytes;
            highest = std::max(highest, of_tape.high_water_bytes);
            mdlm_tape_destroy(tape);
        }
        REQUIRE_OK(mdlm_context_get_stats(context, &stats));
        CHECK(stats.arena_bytes == memory.peak_bytes);
        CHECK(stats.high_water_bytes == memory.peak_bytes);
        CHECK(highest == memory.peak_bytes);
        ++runs;
        mdlm_plan_destroy(plan);
        mdlm_block_destroy(block);
        mdlm_context_destroy(context);
    }
    std::printf("memory: in %lld of %lld runs a tape, not an evaluation, needs the predicted peak\n",
                static_cast<long long>(by_tape), static_cast<long long>(runs));
    CHECK(by_tape > runs / 2);
}

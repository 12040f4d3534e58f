// SPDX-License-Identifier: Apache-2.0
// The planner on blocks: what its chain says of a plan is what the block's layout comes to, to the byte and to the
// nanosecond; and the plans that it finds keep the two promises, bits and memory, over the whole range of budgets.
#include <doctest/doctest.h>

#include <algorithm>
#include <cstdio>

#include "arena_executor.hpp"
#include "debug_executor.hpp"
#include "plan/budget.hpp"
#include "step.hpp"
#include "support/checks.hpp"
#include "support/repro.hpp"

namespace {

using namespace property;
using mdlm::BudgetPlanner;
using mdlm::Policies;
namespace planner = mdlm::planner;

// A draw without settings and edits of its own, so that the planner is asked.
Draw bare(uint64_t seed) {
    Draw d = draw(seed);
    d.config.recompute_granularity = MDLM_RECOMPUTE_GRANULARITY_NONE,
    d.config.recompute_method = MDLM_RECOMPUTE_METHOD_NONE;
    d.config.recompute_num_layers = 0, d.config.recompute_modules = 0;
    d.edits = {};
    d.shape.in_flight = std::max(d.shape.in_flight, static_cast<int32_t>(1 + seed % 3));  // as many as its events need
    return d;
}

mdlm::BlockPlanInput input_of(const Draw &d) {
    const mdlm::Config c = mdlm::resolve(d.config);
    mdlm::Chain chain = mdlm::make_chain(c);
    std::vector<std::vector<char>> trains;
    int64_t index = 0, count = 0;
    for (int64_t i = 0; i < chain.items(); ++i) count += static_cast<int64_t>(chain.of(i).params.size());
    for (int64_t i = 0; i < chain.items(); ++i) {
        trains.emplace_back();
        for (size_t p = 0; p < chain.of(i).params.size(); ++p) trains.back().push_back(!frozen(d, index++, i, count));
    }
    return mdlm::plan_input(c, d.shape, std::move(chain), {}, std::move(trains),
                            mdlm::traits_of(MDLM_DEVICE_CPU, d.threads));
}

// Any policy that may stand there.
int32_t any_choice(Random &r, const planner::LayerType &type, uint32_t role) {
    for (;;) {
        const auto i = static_cast<size_t>(r.in(0, static_cast<int64_t>(type.policies.size()) - 1));
        if ((type.policies[i].roles & role) != 0) return static_cast<int32_t>(i);
    }
}
bool has(const planner::LayerType &type, uint32_t role) {
    return std::any_of(type.policies.begin(), type.policies.end(),
                       [&](const planner::PolicyCost &p) { return (p.roles & role) != 0; });
}

planner::ChainPlan any_plan(Random &r, const planner::Chain &c, int64_t &units) {
    planner::ChainPlan plan;
    for (int32_t at = 0; at < c.size();) {
        int32_t count = 1;
        if (!c.type(at).unit_inputs.empty() && r.percent(60))
            for (const int64_t most = r.in(1, 4); count < most && at + count < c.size(); ++count)
                if (!has(c.type(at + count), planner::role_last) || !has(c.type(at + count - 1), planner::role_inside))
                    break;
        if (count == 1) {
            plan.push_back({at, 1, any_choice(r, c.type(at), planner::role_alone), 0});
        } else {
            ++units;
            plan.push_back({at, count,
                            static_cast<int32_t>(r.in(0, static_cast<int64_t>(c.type(at).unit_inputs.size()) - 1)),
                            count});
            for (int32_t i = at; i < at + count; ++i)
                plan.push_back(
                    {i, 1, any_choice(r, c.type(i), i + 1 < at + count ? planner::role_inside : planner::role_last),
                     0});
        }
        at += count;
    }
    return plan;
}

struct Seen {
    int64_t plans = 0, units = 0, with_units = 0, exact = 0, below = 0;
};

void compare(const Draw &d, Seen &seen) {
    mdlm_test::repro(describe(d));
    INFO(describe(d));
    const mdlm::DeviceTable table = mdlm::device_table("cpu");
    const BudgetPlanner budget(input_of(d), table, mdlm::resolve(d.config).cpu_offloading_num_layers);
    Random r(d.seed * 77 + 5);
    for (const BudgetPlanner::Variant &v : budget.variants(false)) {
        const planner::Chain chain = budget.chain(v);
        for (int i = 0; i < 6; ++i) {
            const int64_t before = seen.units;
            const planner::ChainPlan plan = any_plan(r, chain, seen.units);
            const planner::PlanCost m = planner::simulate(chain, plan);
            mdlm::BlockPlanInput in = budget.input();
            in.policies = budget.policies(v, plan);
            CHECK_NOTHROW(mdlm::check(in.policies, in.chain, in.group_size));
            const auto laid_out = mdlm::make_block_plan(std::move(in));
            const int64_t expected = std::max(m.peak_bytes, budget.floor_bytes());
            CHECK(laid_out->peak_bytes <= expected);
            if (!v.shard && v.staging == 0) CHECK(laid_out->peak_bytes == expected);
            CHECK(mdlm::sum(mdlm::times_of(*laid_out, table)).extra_ns == m.extra_ns);
            ++seen.plans, seen.with_units += seen.units > before;
            ++(laid_out->peak_bytes == expected ? seen.exact : seen.below);
        }
    }
}

void print(const char *what, const Seen &s) {
    std::printf("planner: %s: %lld plans (%lld with units of several layers), the chain's peak is the layout's in "
                "%lld, above it in %lld\n",
                what, static_cast<long long>(s.plans), static_cast<long long>(s.with_units),
                static_cast<long long>(s.exact), static_cast<long long>(s.below));
}

// The range of budgets of a draw, as a block with its frozen parameters has it.
struct BudgetRange {
    uint64_t least = 0, most = 0;
};
BudgetRange range_of(Draw d) {
    d.config.memory_budget = int64_t{1} << 60;
    BudgetRange range;
    mdlm_context *context = nullptr;
    mdlm_block *block = nullptr;
    mdlm_plan *plan = nullptr;
    mdlm_context_desc desc = MDLM_CONTEXT_DESC_INIT;
    desc.num_threads = d.threads;
    REQUIRE_OK(mdlm_context_create(&desc, &context));
    REQUIRE_OK(mdlm_block_create(context, &d.config, &block));
    int64_t count = 0;
    REQUIRE_OK(mdlm_param_count(block, &count));
    for (int64_t i = 0; i < count; ++i) {
        mdlm_param_desc info = MDLM_PARAM_DESC_INIT;
        REQUIRE_OK(mdlm_param_info(block, i, &info));
        if (frozen(d, i, info.layer, count)) REQUIRE_OK(mdlm_param_set_requires_grad(block, i, 0));
    }
    REQUIRE_OK(mdlm_block_plan(block, &d.shape, &plan));
    mdlm_plan_cost cost = MDLM_PLAN_COST_INIT;
    mdlm_memory memory = MDLM_MEMORY_INIT;
    REQUIRE_OK(mdlm_plan_get_cost(plan, &cost));
    REQUIRE_OK(mdlm_plan_memory(plan, &memory));
    CHECK(cost.optimal == 1);
    range = {cost.minimum_budget_bytes, memory.peak_bytes};
    mdlm_plan_destroy(plan);
    mdlm_block_destroy(block);
    mdlm_context_destroy(context);
    return range;
}

Draw at_budget(uint64_t seed) {
    Draw d = bare(seed);
    const BudgetRange range = range_of(d);
    // The ends, and anything between.
    const double share = seed % 5 == 0 ? 0.0 : Random(seed * 3).real(0, 1.05);
    d.config.memory_budget = static_cast<int64_t>(double(range.least) + share * double(range.most - range.least));
    return d;
}

}  // namespace

TEST_CASE("planner: a plan's peak and time in the chain are those of the block's layout") {
    Seen seen;
    for (uint64_t seed = 0; seed < (mdlm_test::sanitized ? 60 : 150); ++seed) compare(bare(seed), seen);
    print("drawn blocks", seen);
    CHECK(seen.with_units > seen.plans / 10);
    CHECK(seen.exact > seen.plans / 2);
}

TEST_CASE("planner: the same over a group, where inputs can be shares") {
    Seen seen;
    for (uint64_t seed = 0; seed < (mdlm_test::sanitized ? 30 : 60); ++seed) {
        Draw d = bare(seed);
        d.config.tensor_model_parallel_size = 2;
        d.config.num_query_groups = 2, d.config.num_attention_heads = seed % 2 == 0 ? 2 : 4;
        d.config.ffn_hidden_size = 2 * Random(seed).in(4, 20);
        d.config.sequence_parallel = seed % 3 == 0;
        d.shape.seq_length += d.shape.seq_length % 2, d.shape.max_tokens = 0;
        compare(d, seen);
    }
    print("groups of two", seen);
    CHECK(seen.exact > seen.plans / 4);
}

TEST_CASE("planner: no set of kept tensors beats the policies that are found for a layer") {
    int64_t layers = 0, sets = 0, found_in_all = 0;
    for (uint64_t seed = 0; seed < (mdlm_test::sanitized ? 12 : 40); ++seed) {
        Draw d = bare(seed);
        if (seed % 3 == 1) {
            d.config.tensor_model_parallel_size = 2, d.config.num_query_groups = 2, d.config.num_attention_heads = 4;
            d.config.ffn_hidden_size = 24, d.config.sequence_parallel = seed % 2 == 0;
            d.shape.seq_length += d.shape.seq_length % 2, d.shape.max_tokens = 0;
        }
        mdlm_test::repro(describe(d));
        INFO(describe(d));
        const mdlm::BlockPlanInput in = input_of(d);
        const mdlm::DeviceTable table = mdlm::device_table("cpu");
        const auto layer = mdlm::differentiate_items(in).front();
        const mdlm::PolicyEnumerator enumerator(layer, in.bound, in.traits, table);
        mdlm::LayoutKey key;
        key.x_in_frame = seed % 4 != 0, key.y_in_slab = seed % 5 != 0, key.slab_above = seed % 3 != 0;
        const std::vector<mdlm::MeasuredPolicy> found = enumerator.pareto(key);
        std::vector<mdlm::BufferId> tensors = mdlm::tensors_of(*layer->program);
        std::erase(tensors, layer->program->input);
        ++layers, found_in_all += static_cast<int64_t>(found.size());
        // All sets, or as many drawn ones where they are too many.
        Random r(seed);
        const uint64_t all = uint64_t{1} << tensors.size();
        for (uint64_t i = 0; i < std::min<uint64_t>(all, 2048); ++i) {
            const uint64_t kept = all <= 2048 ? i : r.next() % all;
            mdlm::LayerPolicy policy = enumerator.input_only();
            for (size_t t = 0; t < tensors.size(); ++t)
                if ((kept >> t & 1) != 0) policy[tensors[t]] = mdlm::Storage::keep;
            const mdlm::MeasuredPolicy c = enumerator.measure(policy, key);
            CHECK(std::any_of(found.begin(), found.end(), [&](const mdlm::MeasuredPolicy &f) {
                return f.saved <= c.saved && f.needs() <= c.needs() && f.extra_ns <= c.extra_ns;
            }));
            ++sets;
        }
        for (const mdlm::MeasuredPolicy &f : found) CHECK(enumerator.measure(f.policy, key).needs() == f.needs());
    }
    std::printf("planner: %lld policies found for %lld layers, held against %lld sets\n",
                static_cast<long long>(found_in_all), static_cast<long long>(layers), static_cast<long long>(sets));
    CHECK(found_in_all > layers * 3);
}

TEST_CASE("planner: plans for budgets give the bits of the plan that keeps everything") {
    int64_t several = 0, replaying = 0, host = 0, draws = 0;
    for (uint64_t seed = 1; seed <= (mdlm_test::sanitized ? 32 : 150); ++seed) {
        const Draw d = at_budget(seed);
        mdlm_test::repro(describe(d));
        INFO(describe(d), " budget ", d.config.memory_budget);
        const Outcome expected = run(d, Which::keep_everything, d.threads), planned = run(d, Which::drawn, d.threads);
        CHECK(difference(expected, planned) == "");
        ++draws, several += planned.units_of_several, replaying += planned.replayed_ops > 0,
            host += planned.host_bytes > 0;
    }
    std::printf("planner: %lld budgets, %lld plans replay, %lld have units of several layers, %lld use the host\n",
                static_cast<long long>(draws), static_cast<long long>(replaying), static_cast<long long>(several),
                static_cast<long long>(host));
    CHECK(replaying > draws / 2);
    CHECK(several > draws / 20);
}

TEST_CASE("planner: plans for budgets keep the memory promise, with 1 to 3 tapes in flight") {
    for (uint64_t seed = 0; seed < (mdlm_test::sanitized ? 16 : 120); ++seed) {
        Draw d = bare(seed);
        d.freeze = Draw::Freeze::nothing;
        const BudgetRange range = range_of(d);
        d.config.memory_budget = static_cast<int64_t>(range.least + (range.most - range.least) * (seed % 8) / 7);
        mdlm_test::repro(describe(d));
        INFO(describe(d), " budget ", d.config.memory_budget);
        memory::World world(d, memory::make_device(MDLM_DEVICE_CPU, d.threads));
        CHECK(world.plan().peak_bytes <= d.config.memory_budget);
        const memory::Outcome expected = world.run();
        const memory::Lifetimes lifetimes = memory::derive(world);
        const memory::DebugRun apart = memory::run_apart(world, lifetimes);
        CHECK(apart.most_alive <= world.plan().peak_bytes);
        CHECK(apart.outcome == expected);
        const memory::ArenaRun in_arena = memory::run_in_arena(world, lifetimes);
        CHECK(in_arena.fault == "");
        CHECK(in_arena.outcome == expected);
        CHECK(in_arena.high_water <= d.config.memory_budget);
    }
}

TEST_CASE("planner: the smallest budget is reserved, one byte less is refused with the number") {
    for (uint64_t seed = 0; seed < (mdlm_test::sanitized ? 10 : 40); ++seed) {
        Draw d = bare(seed);
        d.freeze = Draw::Freeze::nothing;
        mdlm_test::repro(describe(d));
        INFO(describe(d));
        const BudgetRange range = range_of(d);
        mdlm_context *context = nullptr;
        mdlm_block *block = nullptr;
        mdlm_context_desc desc = MDLM_CONTEXT_DESC_INIT;
        desc.num_threads = d.threads;
        REQUIRE_OK(mdlm_context_create(&desc, &context));
        const auto number = std::to_string(range.least);
        for (const uint64_t less : {1u, 0u}) {
            d.config.memory_budget = static_cast<int64_t>(range.least - less);
            REQUIRE_OK(mdlm_block_create(context, &d.config, &block));
            if (less != 0) {
                CHECK_FAILS(mdlm_block_reserve(block, &d.shape, nullptr), MDLM_ERROR_BUDGET, number.c_str());
            } else {
                REQUIRE_OK(mdlm_block_reserve(block, &d.shape, nullptr));
                mdlm_memory memory = MDLM_MEMORY_INIT;
                REQUIRE_OK(mdlm_block_memory(block, &memory));
                CHECK(memory.peak_bytes <= range.least);
            }
            mdlm_block_destroy(block);
        }
        mdlm_context_destroy(context);
    }
}

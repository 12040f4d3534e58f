// SPDX-License-Identifier: Apache-2.0
// Chains of items that no config makes: widths of their own at their boundaries, whole numbers given beside x, a state
// that lasts. A block of them has, under any policy and unit and with any number of tapes, the bits of running every op
// with each buffer in memory of its own.
#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <cstring>

#include "chain_items.hpp"
#include "plan/budget.hpp"
#include "support/split_mix.hpp"

using namespace mdlm;
using namespace mdlm_test::chain_items;
using mdlm_test::Random;

namespace {

std::vector<std::vector<Unit>> all_units(int64_t items) {
    std::vector<std::vector<Unit>> all;
    for (int cuts = 0; cuts < 1 << (items - 1); ++cuts) {
        std::vector<Unit> units = {{0, 1}};
        for (int64_t i = 1; i < items; ++i) {
            if ((cuts >> (i - 1) & 1) != 0) units.push_back({i, 1});
            else ++units.back().count;
        }
        all.push_back(std::move(units));
    }
    return all;
}

// With every tensor kept (0), replayed (1), or any storage that it may have.
Policies drawn(const Chain &chain, const std::vector<Unit> &units, uint64_t seed) {
    Policies p;
    p.units = units;
    Random r(seed);
    for (int64_t i = 0; i < chain.items(); ++i) {
        const Unit &unit = p.unit_of(i);
        p.items.push_back(replay_all(chain.of(i), unit.first == i ? Storage::keep : Storage::replay));
        for (BufferId b : tensors_of(chain.of(i))) {
            if (chain.of(i).always_kept(b)) continue;
            const bool input = b == chain.of(i).input;
            Storage &s = p.items.back()[b];
            if (input && unit.first == i && seed > 1 && r.percent(30)) s = Storage::host;
            if (input || seed == 1) continue;
            const int64_t at = seed == 0 ? 0 : r.in(0, unit.count == 1 ? 2 : 1);
            s = at == 0 ? Storage::keep : at == 1 ? Storage::replay : Storage::host;
        }
    }
    check(p, chain, 1);
    return p;
}

}  // namespace

TEST_CASE("chain items: the same bits under every unit, with any policy and number of tapes") {
    World world;
    int64_t runs = 0;
    for (int32_t in_flight = 1; in_flight <= 3; ++in_flight)
        for (const std::vector<Unit> &units : all_units(world.chain.items()))
            for (uint64_t seed = 0; seed < 8; ++seed) {
                CAPTURE(in_flight);
                CAPTURE(units.size());
                CAPTURE(seed);
                mdlm_shape shape = world.shape(in_flight);
                shape.share_scratch = seed % 4 == 2;
                shape.input_storage = seed % 4 == 3 ? MDLM_INPUT_BORROW : MDLM_INPUT_COPY;
                shape.evaluate_in_flight = seed % 2 == 0;
                shape.input_requires_grad = seed != 5;
                // The block, and with it the states, outlives its reservations.
                CHECK(world.run(shape, drawn(world.chain, units, seed)) == "");
                ++runs;
            }
    CHECK(runs == 3 * 8 * 8);
}

TEST_CASE("chain items: parts frozen, the same bits") {
    for (int frozen = 0; frozen < 4; ++frozen) {
        CAPTURE(frozen);
        World world;
        for (size_t i = 0; i < world.block->params().entries().size(); ++i)
            world.block->set_requires_grad(static_cast<int64_t>(i),
                                           world.block->params().entries()[i].item > frozen - 1);
        for (const std::vector<Unit> &units : all_units(world.chain.items())) {
            mdlm_shape shape = world.shape(2);
            shape.input_requires_grad = 0;
            CHECK(world.run(shape, drawn(world.chain, units, 7)) == "");
        }
    }
}

TEST_CASE("chain items: states are counted once and last from reservation to reservation") {
    World world;
    const Policies p = drawn(world.chain, {{0, 1}, {1, 1}, {2, 1}, {3, 1}}, 0);
    CHECK(world.run(world.shape(1), p) == "");
    int64_t params = 0;
    for (const ParamEntry &e : world.block->params().entries()) params += rounded(e.bytes);
    CHECK(world.block->memory().parameter_bytes == static_cast<uint64_t>(params + 2 * 256));  // two items have one
    CHECK(world.engine.parameter_bytes == params + 2 * 256);
    CHECK(world.run(world.shape(3), p) == "");
    CHECK(world.block->memory().parameter_bytes == static_cast<uint64_t>(params + 2 * 256));
    world.block.reset();
    CHECK(world.engine.parameter_bytes == 0);
}

TEST_CASE("chain items: x and y have the first item's form and the last one's") {
    World world;
    mdlm_shape shape = world.shape(1);
    const Policies p = drawn(world.chain, {{0, 4}}, 0);
    world.block->reserve(&shape, &p);
    const mdlm_batch batch = world.batch(0);
    CHECK(world.block->input_io(batch).shape[2] == 8);
    CHECK(world.block->output_io(batch).shape[2] == 6);
    CHECK(world.block->output_io(batch).bytes == static_cast<uint64_t>(rows * 6 * 4));
    // Nothing is given beside x.
    std::vector<float> x(rows * 8), y(rows * 6);
    CHECK_THROWS_WITH_AS(world.block->forward(&batch, x.data(), nullptr, y.data()),
                         doctest::Contains("positions is NULL"), Error);
}

TEST_CASE("chain items: the planner finds plans within any budget, and they keep the bits") {
    World world(12);
    int64_t plans = 0, several = 0, exact = 0;
    for (int32_t in_flight = 1; in_flight <= 3; ++in_flight)
        for (const bool host : {false, true}) {
            const mdlm_shape shape = world.shape(in_flight);
            const auto input = [&] {
                return plan_input(world.block->config(), shape, world.chain, {}, world.block->params().trains(),
                                  world.engine.device->traits());
            };
            const BudgetPlanner planner(input(), device_table("cpu"), host ? 5 : 0);
            const int64_t least = planner.solve(0).minimum_bytes;
            CHECK(!planner.solve(least - 1).feasible);
            for (const BudgetPoint &point : planner.frontier().points) {
                const BudgetAnswer a = planner.solve(point.peak_bytes);
                REQUIRE(a.feasible);
                CHECK(a.peak_bytes <= point.peak_bytes);
                CHECK(a.peak_bytes >= least);
                CHECK(a.extra_ns <= point.extra_ns);
                CHECK(world.run(shape, a.policies) == "");
                ++plans, exact += a.peak_bytes == a.chain_peak_bytes;
                for (const Unit &u : a.policies.units) several += u.count > 1;
            }
        }
    CHECK(plans > 20);
    CHECK(exact > plans / 2);
    CHECK(several > plans / 4);
}

TEST_CASE("chain items: faults are caught") {
    const std::vector<Unit> one = {{0, 4}}, two = {{0, 2}, {2, 2}};
    const auto each = [](BlockPlan &p, auto &&f) {
        for (auto *list : {&p.forward, &p.backward})
            for (PlanEntry &e : *list) f(e);
    };
    const auto caught = [&](const char *what, const std::vector<Unit> &units, auto &&fault) {
        CAPTURE(what);
        World world;
        CHECK(world.run(world.shape(2), drawn(world.chain, units, 1)) == "");
        CHECK(world.run(world.shape(2), drawn(world.chain, units, 1), fault) != "");
    };
    caught("items share the place of what is always kept", two,
           [&](BlockPlan &p) { each(p, [](PlanEntry &e) { e.kept.offset = 0; }); });
    caught("a replay updates the state again", one, [&](BlockPlan &p) {
        for (PlanEntry &e : p.backward)
            if (e.replay) {
                const LayerPolicy &policy = p.input.policies.items[e.item];
                LayoutKey key;
                key.x_in_frame = e.item > 0, key.y_in_slab = key.slab_above = true;
                e.schedule = p.schedule(e.item, policy, true, false);
                e.layout = p.layout(e.schedule, key);
            }
    });
    caught("items read another's side input", one, [&](BlockPlan &p) {
        for (Item &item : p.input.chain.list)
            for (int32_t &side : item.sides) side = 1 - side;
    });
    caught("tapes share what is always kept", one, [&](BlockPlan &p) { p.stack_bytes = 0; });
    caught("a gradient in the wrong slot", one, [&](BlockPlan &p) {
        for (PlanEntry &e : p.backward)
            if (e.kind == PlanEntry::Kind::backward && e.item == 2) e.dy.offset += 256;
    });
}

TEST_CASE("chain items: what breaks a rule is refused") {
    const auto refused = [](const auto &f, const char *words) {
        CHECK_THROWS_WITH_AS(f(), doctest::Contains(words), Error);
    };
    const Chain chain = make_items();
    refused([] { chain_of({item_of(middle(nullptr, false))}); }, "has a state");
    refused(
        [] {
            auto first = widening(), last = narrowing();
            Program changed = narrowing();
            changed.buffers[changed.sides[0]].name = "positions", changed.buffers[changed.sides[0]].dtype = DType::f32;
            chain_of({item_of(middle()), item_of(std::move(changed))});
        },
        "has several forms");
    Policies p = drawn(chain, {{0, 1}, {1, 1}, {2, 1}, {3, 1}}, 0);
    const BufferId scale = chain.of(1).find("scale");
    refused([&] { set_storage(p, chain, 1, 1, scale, Storage::replay); }, "its maker must not run twice");
    refused([&] { set_storage(p, chain, 1, 1, scale, Storage::host); }, "its maker must not run twice");
    const auto tensors = tensors_of(chain.of(1));
    CHECK(std::count(tensors.begin(), tensors.end(), chain.of(1).sides[0]) == 0);
    Chain apart = chain;
    apart.list[3].in_units = false;
    refused([&] { set_unit(p, apart, 2, 2); }, "expected to lie within the block's 3 layers");
    // Another width, and another dtype of as many bytes.
    const auto plan = [&](std::vector<Item> items) {
        BlockPlanInput in;
        in.chain = chain_of(std::move(items));
        for (const Item &i : in.chain.list) in.trains.emplace_back(i.program->params.size(), 1);
        in.policies = drawn(in.chain, all_units(in.chain.items()).back(), 0);
        in.traits = traits_of(MDLM_DEVICE_REFERENCE, 1);
        in.bound = {rows, rows};
        make_block_plan(std::move(in));
    };
    refused([&] { plan({item_of(widening()), item_of(widening())}); }, "layer 0 makes an output");
    refused(
        [&] {
            Program other = middle();
            other.buffers[other.input].dtype = DType::i32;
            plan({item_of(widening()), item_of(std::move(other))});
        },
        "of i32, the input of the next");
}

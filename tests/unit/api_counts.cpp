// SPDX-License-Identifier: Apache-2.0
// How many objects there are, whatever is made, refused and destroyed, in every order.
#include <doctest/doctest.h>

#include <algorithm>
#include <array>
#include <string>

#include "support/checks.hpp"
#include "support/child.hpp"
#include "support/ranks.hpp"
#include "support/rig.hpp"

using namespace mdlm_test;

namespace {

// Contexts, blocks, tapes, plans, communicators.
using Counts = std::array<int64_t, 5>;

Counts counts() {
    mdlm_object_counts c = MDLM_OBJECT_COUNTS_INIT;
    if (mdlm_count_objects(&c) != MDLM_OK) return {-1, -1, -1, -1, -1};
    return {c.contexts, c.blocks, c.tapes, c.plans, c.comms};
}

std::string text(const Counts &c) {
    std::string all;
    for (const int64_t n : c) all += std::to_string(n) + " ";
    return all;
}

// More than there were.
std::string more_than(const Counts &before, const Counts &more) {
    Counts expected = before;
    for (size_t i = 0; i < more.size(); ++i) expected[i] += more[i];
    const Counts seen = counts();
    return seen == expected ? "" : "seen " + text(seen) + "expected " + text(expected);
}

}  // namespace

TEST_CASE("counts: every kind of object, one after the other") {
    const Counts before = counts();
    Rig rig;
    REQUIRE_OK(mdlm_plan_create(&rig.config, &rig.shape, nullptr, &rig.plan));
    CHECK(more_than(before, {0, 0, 0, 1, 0}) == "");
    mdlm_comm *comm = nullptr, *three[3] = {};
    REQUIRE_OK(mdlm_comm_create_threads(1, &comm));
    REQUIRE_OK(mdlm_comm_create_threads(3, three));
    CHECK(more_than(before, {0, 0, 0, 1, 4}) == "");
    for (mdlm_comm *c : three) mdlm_comm_destroy(c);
    CHECK(more_than(before, {0, 0, 0, 1, 1}) == "");
    rig.desc.comm = comm;
    REQUIRE_OK(rig.open());
    CHECK(more_than(before, {1, 1, 1, 1, 1}) == "");
    REQUIRE_OK(rig.step());
    mdlm_plan *more = nullptr;
    REQUIRE_OK(mdlm_block_plan(rig.block, &rig.shape, &more));
    CHECK(more_than(before, {1, 1, 1, 2, 1}) == "");
    mdlm_plan_destroy(more);
    mdlm_comm_destroy(comm);  // the context keeps it
    CHECK(more_than(before, {1, 1, 1, 1, 1}) == "");
    rig.close();
    CHECK(more_than(before, {}) == "");
    mdlm_tape_destroy(nullptr), mdlm_block_destroy(nullptr), mdlm_context_destroy(nullptr), mdlm_plan_destroy(nullptr),
        mdlm_comm_destroy(nullptr);
    CHECK(more_than(before, {}) == "");
}

TEST_CASE("counts: what is refused makes nothing") {
    const Counts before = counts();
    Rig rig;
    mdlm_plan *plan = nullptr;
    mdlm_tape *tape = nullptr;
    mdlm_block *block = nullptr;
    mdlm_context *context = nullptr;
    mdlm_comm *comm = nullptr;
    mdlm_context_desc desc = rig.desc;
    desc.device = MDLM_DEVICE_CUDA;
    CHECK_FAILS(mdlm_context_create(&desc, &context), MDLM_ERROR_UNSUPPORTED, "");
    desc = rig.desc, desc.log = [](void *, const char *) { throw 1; };
    CHECK_FAILS(mdlm_context_create(&desc, &context), MDLM_ERROR_INTERNAL, "");
    CHECK_FAILS(mdlm_comm_create_threads(0, &comm), MDLM_ERROR_ARGUMENT, "size");
    mdlm_comm_table table = MDLM_COMM_TABLE_INIT;
    CHECK_FAILS(mdlm_comm_create(&table, &comm), MDLM_ERROR_ARGUMENT, "all_reduce");
    mdlm_config config = rig.config;
    config.memory_budget = 1;
    CHECK_FAILS(mdlm_plan_create(&config, &rig.shape, nullptr, &plan), MDLM_ERROR_BUDGET, "");
    CHECK(more_than(before, {}) == "");
    REQUIRE_OK(mdlm_context_create(&rig.desc, &rig.context));
    config = rig.config, config.num_attention_heads = 3;
    CHECK_FAILS(mdlm_block_create(rig.context, &config, &block), MDLM_ERROR_CONFIG, "");
    REQUIRE_OK(mdlm_block_create(rig.context, &rig.config, &rig.block));
    CHECK_FAILS(mdlm_tape_create(rig.block, &tape), MDLM_ERROR_STATE, "");
    CHECK(more_than(before, {1, 1, 0, 0, 0}) == "");
    REQUIRE_OK(mdlm_block_reserve(rig.block, &rig.shape, nullptr));
    REQUIRE_OK(mdlm_tape_create(rig.block, &rig.tape));
    CHECK_FAILS(mdlm_tape_create(rig.block, &tape), MDLM_ERROR_STATE, "taken");
    CHECK_FAILS(mdlm_block_plan(rig.block, nullptr, &plan), MDLM_ERROR_ARGUMENT, "shape");
    CHECK(more_than(before, {1, 1, 1, 0, 0}) == "");
    CHECK_FAILS(mdlm_count_objects(nullptr), MDLM_ERROR_ARGUMENT, "counts");
    mdlm_object_counts small = MDLM_OBJECT_COUNTS_INIT;
    small.struct_size = offsetof(mdlm_object_counts, tapes), small.tapes = 77;
    CHECK_OK(mdlm_count_objects(&small));
    CHECK(small.contexts == before[0] + 1);
    CHECK(small.tapes == 77);
    rig.close();
    CHECK(more_than(before, {}) == "");
}

TEST_CASE("counts: a handle that was destroyed counts while children of it live, in every order") {
    std::array<int, 4> order = {0, 1, 2, 3};  // communicator, context, block, tape
    const Counts before = counts();
    do {
        CAPTURE(order[0]);
        CAPTURE(order[1]);
        CAPTURE(order[2]);
        mdlm_comm *comm = nullptr;
        REQUIRE_OK(mdlm_comm_create_threads(1, &comm));
        Rig rig;
        rig.desc.comm = comm;
        REQUIRE_OK(rig.open());
        std::array<bool, 4> there = {true, true, true, true};
        for (const int which : order) {
            if (which == 0) mdlm_comm_destroy(comm);
            if (which == 1) mdlm_context_destroy(std::exchange(rig.context, nullptr));
            if (which == 2) mdlm_block_destroy(std::exchange(rig.block, nullptr));
            if (which == 3) mdlm_tape_destroy(std::exchange(rig.tape, nullptr));
            there[static_cast<size_t>(which)] = false;
            const int64_t tape = there[3], block = there[2] || tape, context = there[1] || block,
                          communicator = there[0] || context;
            CHECK(more_than(before, {context, block, tape, 0, communicator}) == "");
        }
    } while (std::next_permutation(order.begin(), order.end()));
}

TEST_CASE("counts: handles destroyed during a call go with it") {
    const Counts before = counts();
    Rig rig;
    rig.desc.cancelled = [](void *payload) -> int32_t {
        Rig &r = *static_cast<Rig *>(payload);
        mdlm_tape_destroy(std::exchange(r.tape, nullptr));
        mdlm_context_destroy(std::exchange(r.context, nullptr));
        return 0;
    };
    rig.desc.cancelled_payload = &rig;
    REQUIRE_OK(mdlm_context_create(&rig.desc, &rig.context));
    mdlm_context *const context = rig.context;
    REQUIRE_OK(mdlm_block_create(context, &rig.config, &rig.block));
    rig.make_buffers();
    CHECK_OK(mdlm_block_reserve(rig.block, &rig.shape, nullptr));
    CHECK(rig.context == nullptr);
    CHECK(more_than(before, {1, 1, 0, 0, 0}) == "");
    REQUIRE_OK(mdlm_tape_create(rig.block, &rig.tape));
    CHECK(more_than(before, {1, 1, 1, 0, 0}) == "");
    CHECK_OK(rig.forward());
    CHECK(rig.tape == nullptr);
    CHECK(more_than(before, {1, 1, 0, 0, 0}) == "");
    rig.close();
    CHECK(more_than(before, {}) == "");
}

TEST_CASE("fork: counts are the child's own from then on") {
    const Counts before = counts();
    Rig rig;
    mdlm_comm *comms[2] = {};
    REQUIRE_OK(mdlm_comm_create_threads(2, comms));
    REQUIRE_OK(rig.open());
    CHECK(in_child([&]() -> std::string {
              const Counts inherited = {1, 1, 1, 0, 2};
              EXPECT(more_than(before, inherited) == "");
              {
                  Rig own;
                  EXPECT_OK(own.open());
                  EXPECT(more_than(before, {2, 2, 2, 0, 2}) == "");
              }
              EXPECT(more_than(before, inherited) == "");
              rig.close();
              for (mdlm_comm *c : comms) mdlm_comm_destroy(c);
              return more_than(before, {});
          }) == "");
    CHECK(more_than(before, {1, 1, 1, 0, 2}) == "");
    for (mdlm_comm *c : comms) mdlm_comm_destroy(c);
    rig.close();
    CHECK(more_than(before, {}) == "");
}

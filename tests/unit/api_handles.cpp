// SPDX-License-Identifier: Apache-2.0
// Handles may be destroyed in any order; what is left keeps working, and the last one gives everything back.
#include <doctest/doctest.h>

#include <algorithm>
#include <array>
#include <cstdlib>

#include "support/checks.hpp"
#include "support/rig.hpp"

using namespace mdlm_test;

namespace {

struct Counted {
    int64_t live_bytes = 0, calls = 0, wrong = 0;
    mdlm_allocator table() {
        return {sizeof(mdlm_allocator),
                [](void *payload, size_t bytes, size_t alignment, void *) -> void * {
                    auto &c = *static_cast<Counted *>(payload);
                    c.wrong += bytes == 0 || alignment == 0 || alignment > 4096 || (alignment & (alignment - 1)) != 0;
                    c.live_bytes += static_cast<int64_t>(bytes);
                    ++c.calls;
                    return std::aligned_alloc(alignment, (bytes + alignment - 1) / alignment * alignment);
                },
                [](void *payload, void *memory, size_t bytes, size_t, void *) {
                    auto &c = *static_cast<Counted *>(payload);
                    c.wrong += memory == nullptr;
                    c.live_bytes -= static_cast<int64_t>(bytes);
                    std::free(memory);
                },
                this};
    }
};

}  // namespace

TEST_CASE("destroy in every order") {
    std::array<int, 4> order = {0, 1, 2, 3};
    int orders = 0;
    do {
        CAPTURE(order[0]);
        CAPTURE(order[1]);
        CAPTURE(order[2]);
        CAPTURE(order[3]);
        Counted counted;
        const mdlm_allocator allocator = counted.table();
        Rig rig;
        rig.desc.device_allocator = &allocator;
        rig.desc.host_allocator = &allocator;
        REQUIRE_OK(rig.open());
        REQUIRE_OK(mdlm_block_plan(rig.block, &rig.shape, &rig.plan));
        REQUIRE_OK(rig.forward());
        for (const int which : order) {
            if (which == 0) mdlm_context_destroy(std::exchange(rig.context, nullptr));
            if (which == 1) mdlm_block_destroy(std::exchange(rig.block, nullptr));
            if (which == 2) mdlm_tape_destroy(std::exchange(rig.tape, nullptr));
            if (which == 3) mdlm_plan_destroy(std::exchange(rig.plan, nullptr));
            mdlm_tape_stats stats = MDLM_TAPE_STATS_INIT;
            mdlm_memory memory = MDLM_MEMORY_INIT;
            if (rig.block != nullptr && rig.tape != nullptr)
                CHECK_OK(mdlm_tape_reset(rig.tape) != MDLM_OK ? MDLM_ERROR_INTERNAL : rig.step());
            if (rig.tape != nullptr) CHECK_OK(mdlm_tape_get_stats(rig.tape, &stats));
            if (rig.plan != nullptr) CHECK_OK(mdlm_plan_memory(rig.plan, &memory));
        }
        CHECK(counted.live_bytes == 0);
        CHECK(counted.calls > 0);
        CHECK(counted.wrong == 0);
        ++orders;
    } while (std::next_permutation(order.begin(), order.end()));
    CHECK(orders == 24);
}

TEST_CASE("a tape whose block and context are destroyed can be reset") {
    Rig rig;
    REQUIRE_OK(rig.open());
    REQUIRE_OK(rig.forward());
    mdlm_context_destroy(std::exchange(rig.context, nullptr));
    mdlm_block_destroy(std::exchange(rig.block, nullptr));
    CHECK_OK(mdlm_tape_reset(rig.tape));
}

TEST_CASE("memory from the context: what is asked for is given, aligned, and given back") {
    Counted counted;
    const mdlm_allocator allocator = counted.table();
    Rig rig;
    rig.desc.device_allocator = &allocator;
    REQUIRE_OK(mdlm_context_create(&rig.desc, &rig.context));
    const int64_t before = counted.live_bytes;
    void *memory = nullptr;
    REQUIRE_OK(mdlm_context_alloc(rig.context, 1000, &memory));
    CHECK(reinterpret_cast<uintptr_t>(memory) % 256 == 0);
    CHECK(counted.live_bytes - before >= 1000);
    const char text[] = "over and back";
    char back[sizeof text] = {};
    CHECK_OK(mdlm_context_copy(rig.context, memory, text, sizeof text));
    CHECK_OK(mdlm_context_copy(rig.context, back, memory, sizeof text));
    CHECK(std::strcmp(text, back) == 0);
    CHECK_OK(mdlm_context_synchronize(rig.context));
    CHECK_OK(mdlm_context_free(rig.context, memory, 1000));
    CHECK(counted.live_bytes == before);
    memory = nullptr;
    CHECK_FAILS(mdlm_context_alloc(rig.context, size_t{1} << 62, &memory), MDLM_ERROR_MEMORY, "bytes");
    CHECK(memory == nullptr);
}

TEST_CASE("two contexts do not interfere") {
    Rig one, two;
    REQUIRE_OK(one.open());
    REQUIRE_OK(one.step());
    const uint64_t good = one.digest();
    REQUIRE_OK(two.open());
    REQUIRE_OK(mdlm_params_zero_grads(one.block));
    REQUIRE_OK(one.forward());
    CHECK_FAILS(two.backward(), MDLM_ERROR_STATE, "tape");
    CHECK_OK(two.step());
    two.close();
    CHECK_OK(one.backward());
    CHECK(one.digest() == good);
}

TEST_CASE("the context remembers the last line of any thread") {
    Rig rig;
    REQUIRE_OK(rig.open());
    CHECK_FAILS(rig.backward(), MDLM_ERROR_STATE, "tape");
    const std::string line = mdlm_last_error();
    char text[600];
    size_t length = 0;
    mdlm_set_last_error("");
    CHECK_OK(mdlm_context_last_error(rig.context, text, sizeof text, &length));
    CHECK(line == text);
    CHECK(length == line.size());
    CHECK_OK(mdlm_context_last_error(rig.context, text, 5, &length));
    CHECK(length == line.size());
    CHECK(std::string(text) == line.substr(0, 4));
}

// SPDX-License-Identifier: Apache-2.0
// Blocks of one context that share slots and scratch: same bits, tapes of both in flight, one piece of memory as large
// as the largest needs.
#include <doctest/doctest.h>

#include "support/checks.hpp"
#include "support/rig.hpp"

using mdlm_test::Rig;

namespace {

// A second block on the rig's context, with its own tape and buffers.
struct Second {
    Rig rig;  // its structs and buffers; context borrowed
    explicit Second(Rig &first, std::initializer_list<std::pair<const char *, const char *>> settings) : rig(settings) {
        rig.shape.share_scratch = 1;
        rig.make_buffers();
        REQUIRE_OK(mdlm_block_create(first.context, &rig.config, &rig.block));
        REQUIRE_OK(mdlm_block_reserve(rig.block, &rig.shape, nullptr));
        REQUIRE_OK(mdlm_params_init(rig.block, 42));
        REQUIRE_OK(mdlm_tape_create(rig.block, &rig.tape));
    }
};

uint64_t alone(std::initializer_list<std::pair<const char *, const char *>> settings) {
    Rig rig(settings);
    REQUIRE_OK(rig.open());
    REQUIRE_OK(rig.step());
    return rig.digest();
}

}  // namespace

TEST_CASE("blocks that share scratch give the bits that each gives alone") {
    const std::initializer_list<std::pair<const char *, const char *>> a = {{"num_layers", "3"},
                                                                            {"recompute_granularity", "full"}},
                                                                       b = {{"num_layers", "2"}, {"hidden_size", "48"}};
    Rig first(a);
    first.shape.share_scratch = 1;
    REQUIRE_OK(first.open());
    mdlm_context_stats before = MDLM_CONTEXT_STATS_INIT;
    REQUIRE_OK(mdlm_context_get_stats(first.context, &before));
    REQUIRE_OK(mdlm_params_zero_grads(first.block));
    REQUIRE_OK(first.forward());
    Second second(first, b);  // reserved, so that shared scratch grows, while the first block's tape is in flight
    mdlm_memory m1 = MDLM_MEMORY_INIT, m2 = MDLM_MEMORY_INIT;
    REQUIRE_OK(mdlm_block_memory(first.block, &m1));
    REQUIRE_OK(mdlm_block_memory(second.rig.block, &m2));
    mdlm_context_stats after = MDLM_CONTEXT_STATS_INIT;
    REQUIRE_OK(mdlm_context_get_stats(first.context, &after));
    CHECK(before.arena_bytes == m1.peak_bytes);
    const uint64_t shared1 = m1.peak_bytes - m1.saved_bytes, shared2 = m2.peak_bytes - m2.saved_bytes;
    CHECK(shared2 > shared1);
    CHECK(after.arena_bytes == m1.saved_bytes + m2.saved_bytes + shared2);

    REQUIRE_OK(mdlm_params_zero_grads(second.rig.block));
    REQUIRE_OK(second.rig.forward());
    REQUIRE_OK(first.backward());
    REQUIRE_OK(second.rig.backward());
    CHECK(first.digest() == alone(a));
    CHECK(second.rig.digest() == alone(b));
    // Where saved tensors lie apart, an evaluation needs the most scratch: it has no frame to use.
    REQUIRE_OK(second.rig.evaluate());
    REQUIRE_OK(mdlm_context_get_stats(first.context, &after));
    CHECK(after.high_water_bytes == m2.peak_bytes);
}

TEST_CASE("max_bytes counts the shared part too") {
    Rig rig({{"num_layers", "2"}});
    rig.shape.share_scratch = 1;
    REQUIRE_OK(rig.open());
    mdlm_memory m = MDLM_MEMORY_INIT;
    REQUIRE_OK(mdlm_block_memory(rig.block, &m));
    mdlm_tape_destroy(rig.tape);
    rig.tape = nullptr;
    rig.shape.max_bytes = m.peak_bytes - 1;
    CHECK_FAILS(mdlm_block_reserve(rig.block, &rig.shape, nullptr), MDLM_ERROR_BUDGET, "peak_bytes");
    rig.shape.max_bytes = m.peak_bytes;
    CHECK_OK(mdlm_block_reserve(rig.block, &rig.shape, nullptr));
}

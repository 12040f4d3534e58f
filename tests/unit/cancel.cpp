// SPDX-License-Identifier: Apache-2.0
// A forward or backward that is cancelled at any of its asks leaves what the header says, and the same step again has
// the bits of one that nobody disturbed.
#include <doctest/doctest.h>

#include <cfenv>
#include <cstdlib>

#include "support/cancel.hpp"
#include "support/checks.hpp"
#include "support/rig.hpp"

using namespace mdlm_test;

namespace {

// The caller's allocator, counted.
struct Heap {
    int64_t live = 0;
    mdlm_allocator table() {
        return {sizeof(mdlm_allocator),
                [](void *payload, size_t bytes, size_t alignment, void *) -> void * {
                    ++static_cast<Heap *>(payload)->live;
                    return std::aligned_alloc(alignment, (bytes + alignment - 1) / alignment * alignment);
                },
                [](void *payload, void *memory, size_t, size_t, void *) {
                    --static_cast<Heap *>(payload)->live;
                    std::free(memory);
                },
                this};
    }
};

uint64_t allocations(const Rig &rig) {
    mdlm_context_stats stats = MDLM_CONTEXT_STATS_INIT;
    CHECK_OK(mdlm_context_get_stats(rig.context, &stats));
    return stats.allocations;
}

using Settings = std::initializer_list<std::pair<const char *, const char *>>;

struct Setup {
    const char *name;
    Settings settings;
    bool share_scratch = false, borrow = false;
};
const Setup setups[] = {
    {"nothing replayed", {}},
    {"selective", {{"recompute_granularity", "selective"}}},
    {"units of one layer", {{"recompute_granularity", "full"}}, true},
    {"units of two layers",
     {{"num_layers", "3"},
      {"recompute_granularity", "full"},
      {"recompute_method", "uniform"},
      {"recompute_num_layers", "2"}}},
    {"on the host", {{"cpu_offloading", "1"}, {"cpu_offloading_num_layers", "2"}}, false, true},
    {"units on the host",
     {{"recompute_granularity", "full"}, {"cpu_offloading", "1"}, {"cpu_offloading_num_layers", "1"}},
     true},
};

void open(Rig &rig, const Setup &setup, Canceller &canceller) {
    canceller.join(rig.desc);
    rig.shape.share_scratch = setup.share_scratch;
    rig.shape.input_storage = setup.borrow ? MDLM_INPUT_BORROW : MDLM_INPUT_COPY;
    REQUIRE(rig.good_settings);
    REQUIRE_OK(rig.open());
}

}  // namespace

TEST_CASE("cancel: at every ask of a step, and the next step has the bits of one that was not disturbed") {
    for (const mdlm_device_kind device : {MDLM_DEVICE_REFERENCE, MDLM_DEVICE_CPU})
        for (const Setup &setup : setups) {
            CAPTURE(device);
            CAPTURE(setup.name);
            Canceller canceller;
            Heap heap;
            const mdlm_allocator table = heap.table();
            Rig rig(setup.settings);
            rig.desc.device = device, rig.desc.num_threads = 2;
            rig.desc.device_allocator = rig.desc.host_allocator = &table;
            open(rig, setup, canceller);
            REQUIRE_OK(rig.step());
            const uint64_t good = rig.digest(), allocated = allocations(rig);
            const int64_t live = heap.live;

            int64_t k = 1;
            for (;; ++k) {
                CAPTURE(k);
                canceller.reset(k);
                REQUIRE_OK(mdlm_params_zero_grads(rig.block));
                if (rig.forward() == MDLM_OK) break;
                CHECK(canceller.asks == k);
                canceller.reset();
                CHECK_FAILS(rig.backward(), MDLM_ERROR_STATE, "it is empty");
                CHECK_OK(rig.step());
                CHECK(rig.digest() == good);
                canceller.reset(k);
                CHECK_FAILS(rig.forward(), MDLM_ERROR_CANCELLED, "cancelled: mdlm_block_forward, ");
            }
            CHECK(k > 20);
            CHECK(canceller.asks == k - 1);
            canceller.reset();
            CHECK_OK(rig.backward());
            CHECK(rig.digest() == good);

            for (k = 1;; ++k) {
                CAPTURE(k);
                canceller.reset();
                REQUIRE_OK(mdlm_params_zero_grads(rig.block));
                REQUIRE_OK(rig.forward());
                canceller.reset(k);
                const mdlm_status status = rig.backward();
                if (status == MDLM_OK) break;
                CHECK(status == MDLM_ERROR_CANCELLED);
                CHECK(wrong_with(mdlm_last_error(), "cancelled: mdlm_block_backward, ") == "");
                CHECK(canceller.asks == k);
                canceller.reset();
                if (k == 1) {  // nothing had run
                    CHECK_OK(rig.backward());
                } else {
                    CHECK_FAILS(rig.backward(), MDLM_ERROR_STATE, "it is empty");
                    CHECK_OK(rig.forward());
                    CHECK_FAILS(rig.backward(), MDLM_ERROR_STATE, "gradients are undefined");
                    CHECK_OK(mdlm_params_zero_grads(rig.block));
                    CHECK_OK(rig.backward());
                }
                CHECK(rig.digest() == good);
            }
            CHECK(k > 20);
            CHECK(rig.digest() == good);
            CHECK(allocations(rig) == allocated);
            CHECK(heap.live == live);
            rig.close();
            CHECK(heap.live == 0);
        }
}

TEST_CASE("cancel: an evaluation between tapes, and tapes that others hold") {
    Canceller canceller;
    Rig rig({{"recompute_granularity", "full"}, {"cpu_offloading", "1"}, {"cpu_offloading_num_layers", "2"}});
    canceller.join(rig.desc);
    rig.shape.in_flight = 2, rig.shape.evaluate_in_flight = 1;
    REQUIRE_OK(rig.open());
    REQUIRE_OK(rig.step());
    const uint64_t good = rig.digest();
    mdlm_tape *other = nullptr;
    REQUIRE_OK(mdlm_tape_create(rig.block, &other));
    Buffer y(rig.boundary_bytes());
    const auto disturbed = [&](const char *call, const std::function<mdlm_status()> &run) {
        int64_t k = 1;
        for (;; ++k) {
            CAPTURE(call);
            CAPTURE(k);
            canceller.reset();
            REQUIRE_OK(mdlm_params_zero_grads(rig.block));
            REQUIRE_OK(rig.forward());
            canceller.reset(k);
            const mdlm_status status = run();
            canceller.reset();
            CHECK_OK(rig.backward());
            CHECK(rig.digest() == good);
            if (status == MDLM_OK) break;
            CHECK(status == MDLM_ERROR_CANCELLED);
        }
        CHECK(k > 10);
        CHECK_OK(mdlm_tape_reset(other));
    };
    disturbed("evaluation", [&] { return mdlm_block_forward(rig.block, &rig.batch, rig.x.get(), nullptr, y.get()); });
    disturbed("forward", [&] {
        CHECK_OK(mdlm_tape_reset(other));
        return mdlm_block_forward(rig.block, &rig.batch, rig.x.get(), other, y.get());
    });
    mdlm_tape_destroy(other);
}

TEST_CASE("cancel: the function is refused by its context, and runs in the caller's floating-point environment") {
    Canceller canceller;
    Rig rig;
    canceller.join(rig.desc);
    REQUIRE_OK(rig.open());
    REQUIRE_OK(rig.step());
    const uint64_t good = rig.digest();
    int64_t wrong = 0;
    canceller.reset();
    canceller.inside = [&] {
        wrong += mdlm_params_changed(rig.block) != MDLM_ERROR_BUSY;
        wrong += mdlm_context_synchronize(rig.context) != MDLM_ERROR_BUSY;
        wrong += mdlm_tape_reset(rig.tape) != MDLM_ERROR_BUSY;
        wrong += std::fegetround() != FE_UPWARD;
        wrong += mdlm_comm_cancelled() != 0;  // no function of a communicator runs
    };
    std::fesetround(FE_UPWARD);
    const mdlm_status status = rig.step();
    std::fesetround(FE_TONEAREST);
    CHECK_OK(status);
    CHECK(canceller.asks > 40);
    CHECK(wrong == 0);
    CHECK(rig.digest() == good);
    // Its handles may be destroyed meanwhile: they go when the call does.
    canceller.inside = [&] { mdlm_context_destroy(std::exchange(rig.context, nullptr)); };
    canceller.reset(7);
    CHECK_FAILS(rig.forward(), MDLM_ERROR_CANCELLED, "cancelled");
    CHECK(rig.context == nullptr);
    CHECK(std::string(mdlm_status_name(MDLM_ERROR_CANCELLED)) == "MDLM_ERROR_CANCELLED");
}

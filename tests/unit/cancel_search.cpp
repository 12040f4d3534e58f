// SPDX-License-Identifier: Apache-2.0
// Searches for plans, reserving, calibrating and gathering, cancelled at each of their asks: nothing has changed.
#include <doctest/doctest.h>

#include <string>
#include <vector>

#include "support/cancel.hpp"
#include "support/checks.hpp"
#include "support/rig.hpp"

using namespace mdlm_test;

namespace {

// Cancels a call at every ask until one run has none left; how many there were, at least. Searches ask by the clock, so
// of the hundreds of a long one some will do.
int64_t at_every_ask(Canceller &canceller, const char *call, const std::function<mdlm_status()> &run,
                     const std::function<void()> &unchanged) {
    const std::string line = std::string("cancelled: ") + call + ", ";
    for (int64_t k = 1;; k += k < 64 ? 1 : k / 2) {
        CAPTURE(call);
        CAPTURE(k);
        canceller.reset(k);
        mdlm_set_last_error("");
        const mdlm_status status = run();
        const int64_t asks = canceller.asks;
        canceller.reset();
        if (status == MDLM_OK) {
            CHECK(asks < k);
            return asks;
        }
        REQUIRE_MESSAGE(status == MDLM_ERROR_CANCELLED, said(status));
        CHECK(wrong_with(mdlm_last_error(), line.c_str()) == "");
        CHECK(asks == k);
        unchanged();
    }
}

std::string table_of(mdlm_context *context) {
    char text[4096];
    REQUIRE_OK(mdlm_context_get_device_table(context, text, sizeof text, nullptr));
    return text;
}

}  // namespace

TEST_CASE("cancel: reserve, also in its search for a plan, leaves the reservation as it was") {
    Canceller canceller;
    Rig rig({{"num_layers", "6"}});
    canceller.join(rig.desc);
    mdlm_shape first = rig.shape, larger = rig.shape;
    larger.seq_length = 16, larger.share_scratch = 1;
    rig.config.memory_budget = 1 << 20;
    REQUIRE_OK(rig.open());
    REQUIRE_OK(rig.step());
    const uint64_t good = rig.digest();
    mdlm_memory before = MDLM_MEMORY_INIT, now = MDLM_MEMORY_INIT;
    REQUIRE_OK(mdlm_block_memory(rig.block, &before));
    mdlm_tape_destroy(std::exchange(rig.tape, nullptr));
    const int64_t asks = at_every_ask(
        canceller, "mdlm_block_reserve", [&] { return mdlm_block_reserve(rig.block, &larger, nullptr); },
        [&] {
            REQUIRE_OK(mdlm_block_memory(rig.block, &now));
            CHECK(now.peak_bytes == before.peak_bytes);
            REQUIRE_OK(mdlm_tape_create(rig.block, &rig.tape));
            CHECK_OK(rig.step());
            CHECK(rig.digest() == good);
            mdlm_tape_destroy(std::exchange(rig.tape, nullptr));
        });
    CHECK(asks >= 2);
    REQUIRE_OK(mdlm_block_memory(rig.block, &now));
    CHECK(now.peak_bytes != before.peak_bytes);
    CHECK_OK(mdlm_block_reserve(rig.block, &first, nullptr));
}

TEST_CASE("cancel: searches for a plan give none") {
    Canceller canceller;
    Rig rig({{"num_layers", "3"}, {"memory_budget", "2200KiB"}});
    canceller.join(rig.desc);
    mdlm_target target = MDLM_TARGET_INIT;
    canceller.join(target);
    REQUIRE_OK(mdlm_context_create(&rig.desc, &rig.context));
    REQUIRE_OK(mdlm_block_create(rig.context, &rig.config, &rig.block));
    mdlm_plan *plan = nullptr;
    size_t count = 77;
    uint64_t gap = 77;
    const auto none = [&] {
        CHECK(plan == nullptr);
        CHECK(count == 77);
        CHECK(gap == 77);
    };
    for (const int in_flight : {1, 3}) {
        CAPTURE(in_flight);
        rig.shape.in_flight = in_flight;
        CHECK(at_every_ask(
                  canceller, "mdlm_plan_create",
                  [&] { return mdlm_plan_create(&rig.config, &rig.shape, &target, &plan); }, none) >= 1);
        mdlm_plan_destroy(std::exchange(plan, nullptr));
        CHECK(at_every_ask(
                  canceller, "mdlm_block_plan", [&] { return mdlm_block_plan(rig.block, &rig.shape, &plan); }, none) >=
              1);
        mdlm_plan_destroy(std::exchange(plan, nullptr));
        CHECK(
            at_every_ask(
                canceller, "mdlm_plan_frontier",
                [&] { return mdlm_plan_frontier(&rig.config, &rig.shape, &target, nullptr, nullptr, 0, &count, &gap); },
                none) >= 1);
        CHECK(count != 77);
        count = gap = 77;
    }
}

TEST_CASE("cancel: calibration leaves the table, gathering the host's memory") {
    Canceller canceller;
    Rig rig;
    rig.desc.device = MDLM_DEVICE_CPU;
    canceller.join(rig.desc);
    REQUIRE_OK(rig.open());
    const std::string before = table_of(rig.context);
    CHECK(at_every_ask(
              canceller, "mdlm_context_calibrate", [&] { return mdlm_context_calibrate(rig.context, MDLM_DTYPE_F32); },
              [&] { CHECK(table_of(rig.context) == before); }) > 5);
    CHECK(table_of(rig.context) != before);

    mdlm_param_desc desc = MDLM_PARAM_DESC_INIT;
    REQUIRE_OK(mdlm_param_info(rig.block, 2, &desc));
    std::vector<float> values(desc.bytes / sizeof(float), 5);
    for (const bool gradient : {false, true}) {
        const std::vector<float> before_it(values.size(), 5);
        values = before_it;
        CHECK(at_every_ask(
                  canceller, gradient ? "mdlm_param_grad_gather" : "mdlm_param_gather",
                  [&] {
                      return (gradient ? mdlm_param_grad_gather : mdlm_param_gather)(
                          rig.block, 2, MDLM_DTYPE_F32, values.data(), values.size() * sizeof(float));
                  },
                  [&] { CHECK(values == before_it); }) >= 1);
        CHECK(values != before_it);
    }
}

// SPDX-License-Identifier: Apache-2.0
// Planning for a budget: an allocation that fails anywhere in it is MEMORY, nothing leaks, and the next try has the
// same answer.
#include <doctest/doctest.h>

#include <string>

#include "fault/inject.hpp"
#include "support/checks.hpp"
#include "support/repro.hpp"

using namespace mdlm_test;

namespace {

mdlm_status plan(int64_t budget, mdlm_plan **out) {
    mdlm_config c = MDLM_CONFIG_INIT;
    c.num_layers = 3, c.hidden_size = 16, c.num_attention_heads = 2, c.cpu_offloading = 1,
    c.cpu_offloading_num_layers = 1;
    c.memory_budget = budget;
    mdlm_shape s = MDLM_SHAPE_INIT;
    s.seq_length = 8, s.micro_batch_size = 1;
    mdlm_target t = MDLM_TARGET_INIT;
    t.device = MDLM_DEVICE_REFERENCE;
    return mdlm_plan_create(&c, &s, &t, out);
}

uint64_t extra_of(mdlm_plan *p) {
    mdlm_plan_cost cost = MDLM_PLAN_COST_INIT;
    REQUIRE_OK(mdlm_plan_get_cost(p, &cost));
    CHECK(cost.optimal == 1);
    return cost.extra_ns;
}

}  // namespace

TEST_CASE("operator new fails while a plan for a budget is looked for") {
    mdlm_plan *p = nullptr;
    int64_t budget = int64_t{1} << 40;
    REQUIRE_OK(plan(budget, &p));
    mdlm_plan_cost cost = MDLM_PLAN_COST_INIT;
    REQUIRE_OK(mdlm_plan_get_cost(p, &cost));
    budget = static_cast<int64_t>(cost.minimum_budget_bytes);
    mdlm_plan_destroy(p);

    inject::arm(Fault::heap, INT64_MAX, false);
    REQUIRE_OK(plan(budget, &p));
    const int64_t places = inject::calls();
    inject::disarm();
    const uint64_t good = extra_of(p);
    CHECK(good > 0);
    mdlm_plan_destroy(p);
    const int64_t before = inject::live_blocks();
    // Every place at the beginning, then ever fewer.
    int64_t struck = 0;
    for (int64_t n = 1; n <= places; n += 1 + n / 40) {
        inject::arm(Fault::heap, n, n % 2 == 0);
        p = nullptr;
        const mdlm_status status = plan(budget, &p);
        const bool went_on = inject::only_nothrow_struck();
        inject::disarm();
        if (status == MDLM_OK) {
            CHECK(went_on);
            CHECK(extra_of(p) == good);
            mdlm_plan_destroy(p);
        } else {
            CHECK(status == MDLM_ERROR_MEMORY);
            CHECK(wrong_with(mdlm_last_error(), "memory") == "");
            CHECK(p == nullptr);
        }
        CHECK(inject::live_blocks() == before);
        ++struck;
    }
    REQUIRE_OK(plan(budget, &p));
    CHECK(extra_of(p) == good);
    mdlm_plan_destroy(p);
    MESSAGE(struck, " of ", places, " places struck");
    CHECK(struck > 100);
}

// SPDX-License-Identifier: Apache-2.0
// Plans that are none of a chain's space, and arguments out of range.
#include <doctest/doctest.h>

#include "example.hpp"
#include "planner/chain.hpp"

namespace planner_test {

using namespace mdlm::planner;

TEST_CASE("planner: plans that are none of the chain's are refused") {
    const Chain c = read_chain(example);
    const auto refused = [&](ChainPlan plan) {
        try {
            simulate(c, plan);
        } catch (const mdlm::Error &e) {
            return e.status() == MDLM_ERROR_ARGUMENT;
        }
        return false;
    };
    const ChainPlan good = solve(c, 18).plan;
    CHECK(simulate(c, good).peak_bytes == 18);
    CHECK(refused({}));
    for (size_t i = 0; i < good.size(); ++i) {
        CAPTURE(i);
        for (int32_t PlanItem::*field : {&PlanItem::first, &PlanItem::count, &PlanItem::choice, &PlanItem::inside})
            for (int32_t value : {-1, 7, INT32_MAX, INT32_MIN}) {
                ChainPlan bad = good;
                bad[i].*field = value;
                CHECK(refused(bad));
            }
        ChainPlan bad = good;
        bad.erase(bad.begin() + static_cast<std::ptrdiff_t>(i));
        CHECK(refused(bad) == (good[i].count == 1));  // a unit that goes leaves its layers as single ones
        bad = good;
        bad.insert(bad.begin() + static_cast<std::ptrdiff_t>(i), good[i]);
        CHECK(refused(bad));
    }
    CHECK(refused({{0, 6, 0, 7},
                   {0, 2, 0, 2},
                   {0, 1, 0, 0},
                   {1, 1, 0, 0},
                   {2, 1, 0, 0},
                   {3, 1, 0, 0},
                   {4, 1, 0, 0},
                   {5, 1, 0, 0}}));  // nested
    CHECK_THROWS_AS(solve(c, 5, -1), mdlm::Error);
    CHECK_THROWS_AS(frontier(c, -1), mdlm::Error);
}

}  // namespace planner_test

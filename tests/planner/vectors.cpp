// SPDX-License-Identifier: Apache-2.0
// Known answers, found by full enumeration elsewhere: whole frontiers, and every budget between their points.
#include <doctest/doctest.h>

#include <algorithm>
#include <sstream>

#include "machine.hpp"

namespace planner_test {
namespace {

using namespace mdlm::planner;

struct Numbers {
    int64_t s, r, f, b, c;
};

LayerType layer(int64_t a, int64_t g, int64_t forward_ns, int64_t unsaved, const std::string &names,
                const std::vector<Numbers> &policies) {
    LayerType l;
    l.boundary_bytes = a, l.grad_boundary_bytes = g, l.forward_ns = forward_ns, l.unsaved_forward_bytes = unsaved;
    for (size_t i = 0; i < policies.size(); ++i) {
        const Numbers &n = policies[i];
        l.policies.push_back({names.substr(i, 1), n.s, n.r, n.f, n.b, n.c});
    }
    return l;
}
Chain chain_of(const std::vector<LayerType> &types, int64_t count, int64_t input, int64_t loss) {
    Chain c;
    c.types = types;
    for (int64_t i = 0; i < count; ++i) c.layers.push_back(types.size() == 1 ? 0 : static_cast<int32_t>(i));
    c.input_bytes = input, c.loss_bytes = loss;
    return c;
}

std::string spelled(const Chain &c, const ChainPlan &plan) { return planner_test::spelled(c, tree_of(plan)); }

// "peak cost[ plan] | ...": a plan may be left out; where one is given it is the one that is found, or ties with it.
void expect_frontier(const Chain &c, const std::string &text) {
    CAPTURE(text);
    struct Line {
        int64_t peak, ns;
        std::string plan;
    };
    std::vector<Line> lines;
    std::stringstream all(text);
    for (std::string one; std::getline(all, one, '|');) {
        std::stringstream in(one);
        Line l;
        const bool read = static_cast<bool>(in >> l.peak >> l.ns);
        REQUIRE(read);
        std::getline(in >> std::ws, l.plan);
        l.plan.erase(l.plan.find_last_not_of(' ') + 1);
        lines.push_back(l);
    }
    const Frontier f = frontier(c);
    CHECK(f.optimal);
    REQUIRE(f.points.size() == lines.size());
    const Result none = solve(c, lines[0].peak - 1);
    CHECK(!none.feasible);
    CHECK(none.minimum_budget_bytes == lines[0].peak);
    for (size_t i = 0; i < lines.size(); ++i) {
        CAPTURE(i);
        CHECK(f.points[i].peak_bytes == lines[i].peak);
        CHECK(f.points[i].extra_ns == lines[i].ns);
        CHECK((lines[i].plan.empty() || spelled(c, f.points[i].plan) == lines[i].plan));
        const int64_t next = i + 1 < lines.size() ? lines[i + 1].peak : lines[i].peak + 20;
        for (int64_t budget = lines[i].peak; budget < next; ++budget) {
            const Result r = solve(c, budget);
            CHECK(r.feasible);
            CHECK(r.optimal);
            CHECK(r.gap_ns == 0);
            CHECK(r.peak_bytes == lines[i].peak);
            CHECK(r.extra_ns == lines[i].ns);
            CHECK(r.minimum_budget_bytes == lines[0].peak);
            CHECK(r.plan == f.points[i].plan);
        }
    }
}

void expect_plan(const Chain &c, const std::vector<int32_t> &choices, int64_t peak, int64_t ns) {
    ChainPlan plan;
    for (size_t i = 0; i < choices.size(); ++i) plan.push_back({static_cast<int32_t>(i), 1, choices[i], 0});
    const PlanCost m = simulate(c, plan);
    CHECK(m.peak_bytes == peak);
    CHECK(m.extra_ns == ns);
}

Chain tv2() {
    return chain_of({layer(2, 2, 6, 5, "AMX", {{10, 0, 12, 14, 3}, {6, 2, 9, 15, 0}, {2, 5, 6, 17, 0}})}, 4, 2, 3);
}
Chain tv5(int64_t count, int64_t depth) {
    Chain c = chain_of({layer(2, 2, 4, 5, "AX", {{10, 0, 12, 14, 3}, {2, 3, 5, 14, 0}})}, count, 2, 3);
    c.types[0].unit_inputs.push_back({"keep", 2, 0, true});
    c.max_unit_depth = depth;
    return c;
}

}  // namespace

TEST_CASE("planner: vector 1, two layers, and why retained bytes are not the peak") {
    const Chain c = chain_of({layer(2, 2, 6, 5, "AR", {{10, 0, 12, 13, 3}, {2, 5, 8, 14, 0}})}, 2, 2, 1);
    expect_plan(c, {0, 0}, 23, 0);
    expect_plan(c, {0, 1}, 24, 5);  // retains 12 bytes
    expect_plan(c, {1, 0}, 15, 5);
    expect_plan(c, {1, 1}, 16, 10);
    expect_frontier(c, "15 5 RA | 23 0 AA");
}

TEST_CASE("planner: vectors 2 and 3, four alike layers and the order of their policies") {
    expect_frontier(tv2(), "21 15 XXXA | 24 12 XXMA | 28 9 MXMA | 32 6 MMMA | 36 4 AMMA | 40 2 AAMA | 44 0 AAAA");
    for (const auto &[order, peak] : {std::pair<std::vector<int32_t>, int64_t>{{0, 0, 2, 2}, 39},
                                      {{0, 2, 0, 2}, 39},
                                      {{0, 2, 2, 0}, 29},
                                      {{2, 0, 0, 2}, 39},
                                      {{2, 0, 2, 0}, 29},
                                      {{2, 2, 0, 0}, 28}})
        expect_plan(tv2(), order, peak, 10);
}

TEST_CASE("planner: vector 4, three different layers") {
    const Chain c = chain_of({layer(2, 2, 6, 5, "01", {{9, 0, 11, 13, 4}, {2, 4, 6, 15, 0}}),
                              layer(4, 4, 9, 7, "012", {{16, 0, 20, 24, 6}, {7, 3, 13, 25, 0}, {2, 7, 8, 27, 0}}),
                              layer(2, 2, 5, 7, "01", {{8, 0, 10, 14, 3}, {4, 2, 7, 13, 0}})},
                             3, 2, 5);
    expect_frontier(c, "27 7 110 | 31 6 101 | 32 4 100 | 34 3 010 | 38 2 001 | 39 0 000");
}

TEST_CASE("planner: vector 5, units") {
    expect_frontier(tv5(6, 0), "24 15 | 32 12 | 40 9 | 48 6 | 56 3 | 64 0");
    expect_frontier(tv5(6, 1),
                    "18 27 S1-3[XXA] S4-5[XA] A | 20 23 X S2-3[XA] S4-5[XA] A | 22 19 XXX S4-5[XA] A | 24 15 XXXXXA | "
                    "28 14 S1-2[AA] S3-4[AA] AA | 30 13 XX S3-4[AA] AA | 32 12 | 36 11 S1-3[AAA] AAA | 38 10 AX "
                    "S3-4[AA] AA | 40 9 | "
                    "46 7 AA S3-4[AA] AA | 48 6 | 56 3 | 64 0");
    for (int64_t depth : {int64_t{5}, int64_t{64}, INT64_MAX})
        expect_frontier(tv5(6, depth), "16 55 | 18 27 | 20 23 | 22 19 | 24 15 | 28 14 | 30 13 | 32 12 | 36 11 | 38 10 "
                                       "| 40 9 | 46 7 | 48 6 | 56 3 | 64 0");
    expect_frontier(tv5(5, 2), "18 20 | 20 16 | 22 12 | 28 10 | 30 9 | 36 7 | 38 6 | 46 3 | 54 0");
}

TEST_CASE("planner: vector 6, shares and host as policies") {
    const std::vector<Numbers> with = {{10, 0, 14, 14, 0}, {2, 3, 14, 14, 0}, {1, 4, 15, 15, 0}, {0, 1, 15, 15, 0}};
    const Chain without = chain_of({layer(0, 0, 0, 0, "AXD", {with[0], with[1], with[2]})}, 4, 0, 3);
    expect_frontier(
        without,
        "17 12 DDDA | 18 11 XDDA | 19 10 XXDA | 20 9 XXXA | 26 8 | 27 7 | 28 6 AXXA | 35 4 | 36 3 AAXA | 44 0");
    // The host's policy only with a ring of 10 bytes: of the two chains, the better at every budget.
    Chain ring = chain_of({layer(0, 0, 0, 0, "AXDO", with)}, 4, 0, 3);
    ring.fixed_bytes = 10;
    const int64_t expected[][2] = {{17, 12}, {18, 11}, {19, 10}, {20, 9}, {25, 3}, {34, 2}, {44, 0}};
    for (size_t i = 0; i < std::size(expected); ++i)
        for (int64_t budget = expected[i][0]; budget < (i + 1 < std::size(expected) ? expected[i + 1][0] : 60);
             ++budget) {
            const Result a = solve(without, budget), b = solve(ring, budget);
            CAPTURE(budget);
            CHECK(std::min(a.feasible ? a.extra_ns : INT64_MAX, b.feasible ? b.extra_ns : INT64_MAX) == expected[i][1]);
        }
    CHECK(spelled(ring, solve(ring, 25).plan) == "OOOA");
    CHECK(spelled(ring, solve(ring, 34).plan) == "OOAA");
}

TEST_CASE("planner: vector 7, several tapes in flight") {
    Chain c = chain_of({layer(0, 0, 0, 0, "AX", {{10, 0, 14, 14, 0}, {2, 3, 14, 14, 0}})}, 3, 0, 3);
    expect_frontier(c, "18 6 XXA | 26 3 AXA | 34 0");
    c.in_flight = 2;
    expect_frontier(c, "24 9 XXX | 40 6 | 56 3 | 64 0");
    c.in_flight = 3;
    expect_frontier(c, "30 9 | 54 6 | 78 3 | 94 0");
}

TEST_CASE("planner: vector 8, unit sizes are Revolve") {
    // Forward steps of the best reversal of n steps with s checkpoints.
    const int64_t table[4][12] = {{0, 1, 3, 6, 10, 15, 21, 28, 36, 45, 55, 66},
                                  {0, 1, 2, 4, 6, 8, 11, 14, 17, 20, 24, 28},
                                  {0, 1, 2, 3, 5, 7, 9, 11, 13, 15, 18, 21},
                                  {0, 1, 2, 3, 4, 6, 8, 10, 12, 14, 16, 18}};
    const auto steps = [](int64_t n, int64_t s) {
        Chain c = chain_of({layer(1, 0, 1, 2, "P", {{1, 0, 2, 1, 0}})}, n, 1, 0);
        c.types[0].unit_inputs.push_back({"keep", 1, 0, true});
        c.max_unit_depth = n;
        const Result r = solve(c, s + 2);
        return r.feasible ? r.extra_ns + n - 1 : -1;
    };
    for (int64_t s = 1; s <= 4; ++s)
        for (int64_t n = 1; n <= 12; ++n) {
            CAPTURE(s);
            CAPTURE(n);
            CHECK(steps(n, s) == table[s - 1][n - 1]);
        }
    // The recurrence itself further on: the first checkpoint after k steps.
    std::vector<std::vector<int64_t>> best(7, std::vector<int64_t>(31, INT64_MAX));
    for (size_t s = 1; s <= 6; ++s) {
        best[s][1] = 0;
        for (size_t n = 2; n <= 30; ++n) {
            if (s == 1) best[s][n] = static_cast<int64_t>(n * (n - 1) / 2);
            for (size_t k = 1; s > 1 && k < n; ++k)
                best[s][n] = std::min(best[s][n], static_cast<int64_t>(k) + best[s][k] + best[s - 1][n - k]);
        }
        for (size_t n = 1; n <= 30; n += 4)
            CHECK(steps(static_cast<int64_t>(n), static_cast<int64_t>(s)) == best[s][n]);
    }
}

TEST_CASE("planner: vector 9, a knapsack with room for one keeps one") {
    const Chain c = chain_of({layer(0, 0, 0, 0, "KR", {{1, 0, 1, 1, 0}, {0, 1, 0, 0, 0}})}, 3, 0, 0);
    const Result r = solve(c, 1);
    CHECK(r.extra_ns == 2);
    CHECK(std::count_if(r.plan.begin(), r.plan.end(), [](const PlanItem &i) { return i.choice == 0; }) == 1);
    CHECK(spelled(c, r.plan) == "KRR");
}

}  // namespace planner_test

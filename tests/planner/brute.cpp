// SPDX-License-Identifier: Apache-2.0
// Every plan of small chains, run by the separate machine, against the solver: at every budget the same cost, the same
// peak, the same plan.
#include <doctest/doctest.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <map>
#include <numeric>

#include "draw.hpp"
#include "support/repro.hpp"

namespace planner_test {
namespace {

using namespace mdlm::planner;

// What the best plans of the drawn chains were made of: a test that draws nothing of a kind says nothing about it.
struct Coverage {
    int plans = 0, points = 0, units = 0, nested = 0, made_again = 0, tapes_and_units = 0, ties = 0;
} coverage;

void cover(const Chain &chain, const std::vector<Node> &plan, int depth = 0) {
    for (const Node &n : plan) {
        if (n.inner.empty()) continue;
        ++(depth == 0 ? coverage.units : coverage.nested);
        coverage.made_again += !chain.type(n.first).unit_inputs[static_cast<size_t>(n.choice)].stays;
        coverage.tapes_and_units += chain.in_flight > 1;
        cover(chain, n.inner, depth + 1);
    }
}

std::string text(int64_t peak, int64_t ns, const Chain &chain, const std::vector<Node> &plan) {
    return std::to_string(peak) + "/" + std::to_string(ns) + " " + spelled(chain, plan);
}

// All points of the frontier, each with the plan that is first.
std::map<int64_t, std::pair<int64_t, std::vector<Node>>> frontier_of(const Chain &chain, Random &random,
                                                                     std::string &wrong) {
    std::map<int64_t, std::pair<int64_t, std::vector<Node>>> best;  // by peak: ns, plan
    std::vector<int> order(static_cast<size_t>(chain.in_flight));
    std::iota(order.begin(), order.end(), 0);
    for (const auto &plan : all_plans(chain)) {
        const Seen seen = run(chain, plan, order);
        if (random.percent(5)) {  // in every other order as well, and by the planner's own walk
            std::vector<int> other = order;
            while (std::next_permutation(other.begin(), other.end()))
                if (run(chain, plan, other) != seen)
                    wrong = "the order of the tapes matters to " + spelled(chain, plan);
            const PlanCost m = simulate(chain, list_of(plan));
            if (m.peak_bytes != seen.peak || m.extra_ns != seen.ns)
                wrong = "simulate says " + text(m.peak_bytes, m.extra_ns, chain, plan) + ", the machine " +
                        text(seen.peak, seen.ns, chain, plan);
        }
        const auto at = best.find(seen.peak);
        ++coverage.plans;
        coverage.ties += at != best.end() && at->second.first == seen.ns;
        if (at == best.end() || seen.ns < at->second.first ||
            (seen.ns == at->second.first && rank(plan) < rank(at->second.second)))
            best[seen.peak] = {seen.ns, plan};
    }
    int64_t least = INT64_MAX;
    for (auto at = best.begin(); at != best.end();) {
        if (at->second.first >= least) {
            at = best.erase(at);
        } else {
            least = at->second.first;
            ++coverage.points;
            cover(chain, at->second.second);
            ++at;
        }
    }
    return best;
}

Case compare(uint64_t seed) {
    Random random(seed);
    Case c{draw_chain(random, {}), ""};
    const auto best = frontier_of(c.chain, random, c.wrong);
    if (!c.wrong.empty()) return c;
    const Frontier all = frontier(c.chain);
    std::string expected, seen;
    for (const auto &[peak, what] : best) expected += text(peak, what.first, c.chain, what.second) + " | ";
    for (const FrontierPoint &p : all.points) seen += text(p.peak_bytes, p.extra_ns, c.chain, tree_of(p.plan)) + " | ";
    if (expected != seen || !all.optimal || all.gap_ns != 0)
        c.wrong = "frontier: expected " + expected + "seen " + seen;
    const Frontier bare = frontier(c.chain, 0, false);
    for (size_t i = 0; i < std::max(all.points.size(), bare.points.size()) && c.wrong.empty(); ++i)
        if (all.points.size() != bare.points.size() || bare.points[i].peak_bytes != all.points[i].peak_bytes ||
            bare.points[i].extra_ns != all.points[i].extra_ns || !bare.points[i].plan.empty())
            c.wrong = "frontier without plans: it differs at point " + std::to_string(i);
    for (auto at = best.begin(); at != best.end() && c.wrong.empty(); ++at) {
        const auto next = std::next(at);
        std::vector<int64_t> budgets = {at->first};
        if (next != best.end()) budgets.insert(budgets.end(), {next->first - 1, random.in(at->first, next->first - 1)});
        else budgets.insert(budgets.end(), {at->first + random.in(0, 100), INT64_MAX});
        for (int64_t budget : budgets) {
            const Result r = solve(c.chain, budget);
            const std::string answer = text(r.peak_bytes, r.extra_ns, c.chain, tree_of(r.plan));
            const std::string right = text(at->first, at->second.first, c.chain, at->second.second);
            if (!r.feasible || !r.optimal || r.gap_ns != 0 || answer != right ||
                r.minimum_budget_bytes != best.begin()->first)
                c.wrong = "budget " + std::to_string(budget) + ": expected " + right + ", least " +
                          std::to_string(best.begin()->first) + ", seen " + answer + ", least " +
                          std::to_string(r.minimum_budget_bytes) + (r.feasible ? "" : ", infeasible");
        }
    }
    const int64_t less = best.begin()->first - 1 - (random.percent(50) ? 0 : random.in(0, best.begin()->first));
    const Result none = solve(c.chain, less);
    if (c.wrong.empty() && (none.feasible || !none.plan.empty() || none.minimum_budget_bytes != best.begin()->first))
        c.wrong = "budget " + std::to_string(less) + " is below the first peak " + std::to_string(best.begin()->first) +
                  ": seen a plan, or the least budget " + std::to_string(none.minimum_budget_bytes);
    return c;
}

// With few labels a layer the answer is a plan that fits, and the gap that it carries is no lie.
Case capped(uint64_t seed) {
    Random random(seed);
    Sizes sizes;
    sizes.layers = 7, sizes.bytes = 100, sizes.ns = 90, sizes.depth = 2;
    Case c{draw_chain(random, sizes), ""};
    const int64_t cap = random.in(1, 6);
    const Frontier exact = frontier(c.chain), some = frontier(c.chain, cap);
    const int64_t budget = random.in(exact.points.front().peak_bytes, exact.points.back().peak_bytes);
    const Result best = solve(c.chain, budget), r = solve(c.chain, budget, cap);
    const std::string numbers = "cap " + std::to_string(cap) + ", budget " + std::to_string(budget) + ": " +
                                std::to_string(r.extra_ns) + " - gap " + std::to_string(r.gap_ns) + ", optimum " +
                                std::to_string(best.extra_ns);
    if (!r.feasible || r.peak_bytes > budget || r.extra_ns < best.extra_ns || r.extra_ns - r.gap_ns > best.extra_ns ||
        r.optimal != (r.gap_ns == 0))
        c.wrong = numbers;
    for (const FrontierPoint &p : exact.points) {
        int64_t ns = INT64_MAX;
        for (const FrontierPoint &q : some.points)
            if (q.peak_bytes <= p.peak_bytes) ns = q.extra_ns;
        if (ns < p.extra_ns || ns - some.gap_ns > p.extra_ns)
            c.wrong = "frontier with cap " + std::to_string(cap) + " at " + std::to_string(p.peak_bytes) + ": " +
                      std::to_string(ns) + " - gap " + std::to_string(some.gap_ns) + ", exact " +
                      std::to_string(p.extra_ns);
    }
    return c;
}

constexpr const char *brute_name = "planner: drawn chains against every plan of theirs";
constexpr const char *capped_name = "planner: a capped answer fits, and its gap holds";

}  // namespace

TEST_CASE(brute_name) {
    coverage = {};
    for_seeds(brute_name, 0, mdlm_test::sanitized ? 250 : 2000, compare);
    const Coverage &c = coverage;
    std::printf("note: %d plans, %d points of frontiers, in them %d units, %d nested ones, %d whose input does not "
                "stay, %d with several tapes; %d ties\n",
                c.plans, c.points, c.units, c.nested, c.made_again, c.tapes_and_units, c.ties);
    if (std::getenv("MDLM_DRAW") != nullptr) return;
    const int least = mdlm_test::sanitized ? 10 : 100;
    CHECK(c.units > least);
    CHECK(c.nested > least / 10);
    CHECK(c.made_again > least);
    CHECK(c.tapes_and_units > least);
    CHECK(c.ties > least);
}
TEST_CASE(capped_name) { for_seeds(capped_name, 0, mdlm_test::sanitized ? 250 : 2000, capped); }

}  // namespace planner_test

// SPDX-License-Identifier: Apache-2.0
// What holds of every chain, on chains too large to enumerate.
#include <doctest/doctest.h>

#include <algorithm>
#include <numeric>

#include "draw.hpp"
#include "support/repro.hpp"

namespace planner_test {
namespace {

using namespace mdlm::planner;

constexpr int64_t nothing_fits = INT64_MAX;

std::string of(const char *name, int64_t value) { return std::string(", ") + name + " " + std::to_string(value); }

int64_t cost(const Chain &chain, int64_t budget) {
    const Result r = solve(chain, budget);
    return r.feasible ? r.extra_ns : nothing_fits;
}
int64_t cost_of(const Frontier &f, int64_t budget) {
    int64_t ns = nothing_fits;
    for (const FrontierPoint &p : f.points)
        if (p.peak_bytes <= budget) ns = p.extra_ns;
    return ns;
}
Seen run_in_order(const Chain &chain, const ChainPlan &plan) {
    std::vector<int> order(static_cast<size_t>(chain.in_flight));
    std::iota(order.begin(), order.end(), 0);
    return run(chain, tree_of(plan), order);
}
int64_t budget_in(Random &random, const Frontier &f) {
    return random.in(f.points.front().peak_bytes - 1, f.points.back().peak_bytes + 1);
}

// All bytes times q and all times times t.
Chain scaled(Chain c, int64_t q, int64_t t) {
    for (LayerType &l : c.types) {
        l.forward_ns *= t;
        for (PolicyCost &p : l.policies) p.extra_ns *= t, p.rebuild_ns *= t;
        for (UnitInput &u : l.unit_inputs) u.restore_ns *= t;
    }
    for (int64_t *bytes : {&c.input_bytes, &c.fixed_bytes, &c.loss_bytes}) *bytes *= q;
    for (LayerType &l : c.types) {
        for (int64_t *bytes : {&l.boundary_bytes, &l.grad_boundary_bytes, &l.unsaved_forward_bytes}) *bytes *= q;
        for (PolicyCost &p : l.policies)
            for (int64_t *bytes : {&p.saved_bytes, &p.forward_bytes, &p.backward_bytes}) *bytes *= q;
        for (UnitInput &u : l.unit_inputs) u.saved_bytes *= q;
    }
    return c;
}

Case properties(uint64_t seed) {
    Random random(seed);
    Sizes sizes;
    sizes.layers = 10, sizes.policies = 4, sizes.depth = 2, sizes.bytes = 60, sizes.ns = 40, sizes.plans = 1e300;
    Case c{draw_chain(random, sizes), ""};
    const Chain &chain = c.chain;
    const Frontier f = frontier(chain);
    const auto wrong = [&](const std::string &what) {
        if (c.wrong.empty()) c.wrong = what;
    };
    // Peaks rise and times fall; each plan is what its numbers say.
    for (size_t i = 0; i < f.points.size(); ++i) {
        const FrontierPoint &p = f.points[i];
        const Seen seen = run_in_order(chain, p.plan);
        if (seen.peak != p.peak_bytes || seen.ns != p.extra_ns)
            wrong("a plan of the frontier runs otherwise" + of("point", static_cast<int64_t>(i)));
        if (i > 0 && (p.peak_bytes <= f.points[i - 1].peak_bytes || p.extra_ns >= f.points[i - 1].extra_ns))
            wrong("the frontier turns back");
    }
    // One budget and all of them agree, and more bytes never cost more.
    int64_t low = budget_in(random, f), high = budget_in(random, f);
    if (low > high) std::swap(low, high);
    const Result a = solve(chain, low), b = solve(chain, high);
    for (const auto &[budget, r] : {std::pair<int64_t, const Result &>{low, a}, {high, b}}) {
        if ((r.feasible ? r.extra_ns : nothing_fits) != cost_of(f, budget))
            wrong("solve and frontier differ" + of("budget", budget));
        if (r.minimum_budget_bytes != f.points.front().peak_bytes) wrong("the smallest budget is another");
        if (!r.feasible) continue;
        const Seen seen = run_in_order(chain, r.plan);
        if (seen.peak != r.peak_bytes || seen.ns != r.extra_ns || seen.peak > budget)
            wrong("a plan runs otherwise" + of("budget", budget));
    }
    if (a.feasible && (!b.feasible || b.extra_ns > a.extra_ns))
        wrong("more bytes cost more" + of("budget", low) + of("and", high));
    // One more choice never hurts.
    Chain more = chain;
    LayerType &type = more.types[static_cast<size_t>(random.in(0, static_cast<int64_t>(more.types.size()) - 1))];
    if (random.percent(70))
        type.policies.push_back({"new", random.in(0, 99), random.in(0, 40), random.in(0, 150), random.in(0, 150),
                                 random.in(0, 40), role_any});
    else type.unit_inputs.push_back({"new", random.in(0, 60), random.in(0, 20), random.percent(50)});
    if (cost(more, high) > cost(chain, high)) wrong("another choice costs more" + of("budget", high));
    more = chain;
    ++more.max_unit_depth;
    if (chain.max_unit_layers > 0 && cost(more, high) > cost(chain, high))
        wrong("deeper units cost more" + of("budget", high));
    more = chain;
    ++more.in_flight;
    if (!chain.one_stack() && cost(more, high) < cost(chain, high))
        wrong("another tape costs less" + of("budget", high));
    // All bytes times q and all times times t: the same plans at q times the bytes and t times the time, up to the
    // largest numbers there are.
    const int64_t q = random.percent(50) ? random.in(2, 1000) : int64_t{1} << random.in(1, 45),
                  t = random.percent(50) ? 1 : int64_t{1} << random.in(1, 45);
    const Chain big = scaled(chain, q, t);
    const Frontier g = frontier(big);
    bool same = f.points.size() == g.points.size();
    for (size_t i = 0; same && i < f.points.size(); ++i)
        same = g.points[i].peak_bytes == q * f.points[i].peak_bytes &&
               g.points[i].extra_ns == t * f.points[i].extra_ns && g.points[i].plan == f.points[i].plan;
    if (!same)
        wrong("with all bytes times " + std::to_string(q) + " and all times times " + std::to_string(t) +
              " the frontier is another");
    const Result h = solve(big, high * q + random.in(0, q - 1));
    if (h.feasible != b.feasible || h.extra_ns != t * b.extra_ns || h.peak_bytes != q * b.peak_bytes ||
        h.plan != b.plan)
        wrong("with all bytes times " + std::to_string(q) + " and all times times " + std::to_string(t) +
              " the plan is another" + of("budget", high));
    return c;
}

// One layer: the least cost of the policies that fit.
Case one_layer(uint64_t seed) {
    Random random(seed);
    Sizes sizes;
    sizes.layers = 1, sizes.policies = 9, sizes.plans = 1e300;
    Case c{draw_chain(random, sizes), ""};
    c.chain.in_flight = 1, c.chain.slab_apart = false;
    const int64_t budget = random.in(0, 60);
    int64_t least = nothing_fits;
    for (const PolicyCost &p : c.chain.type(0).policies)
        if ((p.roles & role_alone) != 0 &&
            c.chain.fixed_bytes + std::max({p.forward_bytes, p.backward_bytes, p.saved_bytes + c.chain.loss_bytes}) <=
                budget)
            least = std::min(least, p.extra_ns);
    if (cost(c.chain, budget) != least) c.wrong = "budget " + std::to_string(budget) + of("expected", least);
    return c;
}

// Alike layers, none in units: how often each policy is taken decides, placed by falling need above what it leaves (an
// exchange of neighbours shows it). All counts are tried.
Case alike(uint64_t seed) {
    Random random(seed);
    Sizes sizes;
    sizes.layers = 1, sizes.types = 1, sizes.policies = 4, sizes.depth = 0, sizes.in_flight = 1, sizes.bytes = 90,
    sizes.ns = 70, sizes.plans = 1e300;
    Case c{draw_chain(random, sizes), ""};
    Chain &chain = c.chain;
    chain.slab_apart = false;
    chain.layers.assign(static_cast<size_t>(random.in(2, 16)), 0);
    LayerType &t = chain.types[0];
    for (PolicyCost &p : t.policies) {
        p.roles = role_any;
        p.forward_bytes = std::max(p.forward_bytes, p.saved_bytes),
        p.backward_bytes = std::max(p.backward_bytes, p.saved_bytes);
    }
    std::vector<int32_t> order(t.policies.size());
    std::iota(order.begin(), order.end(), 0);
    const auto above = [&](int32_t p) {
        const PolicyCost &q = t.policies[static_cast<size_t>(p)];
        return std::max(q.forward_bytes, q.backward_bytes) - q.saved_bytes;
    };
    std::sort(order.begin(), order.end(), [&](int32_t a, int32_t b) { return above(a) > above(b); });
    const auto peak_of = [&](const std::vector<int32_t> &choices) {
        ChainPlan plan;
        for (size_t i = 0; i < choices.size(); ++i) plan.push_back({static_cast<int32_t>(i), 1, choices[i], 0});
        return run_in_order(chain, plan);
    };
    const Frontier f = frontier(chain);
    const int64_t budget = budget_in(random, f);
    int64_t least = nothing_fits;
    std::vector<int64_t> counts(order.size(), 0);
    counts[0] = chain.size();
    for (bool more = true; more;) {
        std::vector<int32_t> choices;
        for (size_t i = 0; i < order.size(); ++i)
            choices.insert(choices.end(), static_cast<size_t>(counts[i]), order[i]);
        const Seen sorted = peak_of(choices);
        if (sorted.peak <= budget) least = std::min(least, sorted.ns);
        if (random.percent(10)) {
            for (size_t i = choices.size(); i-- > 1;)
                std::swap(choices[i], choices[static_cast<size_t>(random.in(0, static_cast<int64_t>(i)))]);
            if (peak_of(choices).peak < sorted.peak) c.wrong = "another order of alike layers has a lower peak";
        }
        // The next way to share the layers out: the first count that is not 0 goes over to its neighbour but for one.
        size_t first = 0;
        while (first + 1 < counts.size() && counts[first] == 0) ++first;
        more = first + 1 < counts.size();
        if (more) {
            const int64_t moved = counts[first];
            counts[first] = 0, ++counts[first + 1], counts[0] = moved - 1;
        }
    }
    if (c.wrong.empty() && (cost(chain, budget) != least || cost_of(f, budget) != least))
        c.wrong = "budget " + std::to_string(budget) + of("expected", least);
    return c;
}

// Chains of the size of real ones, where bounds leave out nearly all: against the search without bounds.
Case large(uint64_t seed) {
    Random random(seed);
    Sizes sizes;
    sizes.layers = 1, sizes.types = 4, sizes.policies = 8, sizes.depth = 2, sizes.in_flight = 1, sizes.bytes = 100000,
    sizes.ns = 3000, sizes.plans = 1e300;
    Case c{draw_chain(random, sizes), ""};
    Chain &chain = c.chain;
    chain.slab_apart = false;
    chain.max_unit_layers = random.in(0, 6);
    if (chain.max_unit_layers == 0) chain.max_unit_depth = 0;
    const int64_t layers = random.in(12, 28), types = static_cast<int64_t>(chain.types.size());
    chain.layers.clear();
    for (int64_t i = 0; i < layers; ++i)
        chain.layers.push_back(static_cast<int32_t>(random.percent(50) ? i % types : random.in(0, types - 1)));
    const Frontier f = frontier(chain);
    for (int i = 0; i < 8 && c.wrong.empty(); ++i) {
        const auto at = static_cast<size_t>(random.in(0, static_cast<int64_t>(f.points.size()) - 1));
        const FrontierPoint &p = f.points[at];
        const int64_t budget =
            at + 1 < f.points.size() ? random.in(p.peak_bytes, f.points[at + 1].peak_bytes - 1) : p.peak_bytes;
        const Result r = solve(chain, budget);
        if (!f.optimal || !r.optimal || r.extra_ns != p.extra_ns || r.peak_bytes != p.peak_bytes || r.plan != p.plan)
            c.wrong = "budget " + std::to_string(budget) + of("expected", p.extra_ns) + of("ns at", p.peak_bytes) +
                      of("seen", r.extra_ns) + of("ns at", r.peak_bytes);
    }
    return c;
}

constexpr const char *properties_name = "planner: properties of drawn chains";
constexpr const char *one_layer_name = "planner: one layer takes the cheapest policy that fits";
constexpr const char *alike_name = "planner: alike layers, all counts of policies";
constexpr const char *large_name = "planner: large chains, with bounds and without";
constexpr uint64_t share = mdlm_test::sanitized ? 20 : 1;

}  // namespace

TEST_CASE(properties_name) { for_seeds(properties_name, 0, 10000 / share, properties); }
TEST_CASE(one_layer_name) { for_seeds(one_layer_name, 0, 10000 / share, one_layer); }
TEST_CASE(alike_name) { for_seeds(alike_name, 0, 2000 / share, alike); }
TEST_CASE(large_name) { for_seeds(large_name, 0, 300 / share, large); }

}  // namespace planner_test

// SPDX-License-Identifier: Apache-2.0
// One budget: the exact plan, or the best found and how far from it that may be.
#include <algorithm>

#include "planner/edges.hpp"

namespace mdlm::planner {
namespace {

// Looks for the cheapest way through edges, first with few steps a layer for a plan to compare with, then with all that
// may be better.
class Solver {
public:
    Solver(const Chain &chain, int64_t budget, int64_t cap, Cancellation *cancellation)
        : space_(chain, cancellation), budget_(budget) {
        space_.set_step_cap(cap);
        if (cap == 0)
            cap =
                std::max<int64_t>((int64_t{48} << 20) / static_cast<int64_t>(sizeof(Step)) / (chain.size() + 1), 2048);
        cap_ = static_cast<size_t>(cap);
    }

    Result run() {
        const Chain &chain = space_.chain();
        const bool one = chain.one_stack();
        Result r;
        const int64_t least = one ? least_bytes(edges_of_one(space_, infinite), space_, chain.loss_bytes)
                                  : least_bytes_of_several(space_);
        r.minimum_budget_bytes = chain.fixed_bytes + least;
        if (budget_ < least) return r;
        space_.set_limit(budget_);
        if (one) run_one();
        else run_several();
        r.feasible = true;
        r.plan = std::move(best_.plan);
        const PlanCost seen = simulate(chain, r.plan);
        r.peak_bytes = seen.peak_bytes, r.extra_ns = seen.extra_ns;
        r.gap_ns = std::max<int64_t>(r.extra_ns - std::max<int64_t>(std::min(best_.ns - error_ns_, others_ns_), 0), 0);
        r.optimal = r.gap_ns == 0;
        const bool exact = others_ns_ == infinite && error_ns_ == 0;
        const int64_t peak = chain.fixed_bytes + best_.bytes;
        if (seen.peak_bytes > chain.fixed_bytes + budget_ ||
            (exact && (seen.peak_bytes != peak || seen.extra_ns != best_.ns)))
            fail(MDLM_ERROR_INTERNAL, "the planner's plan has %lld bytes and %lld ns: expected %lld and %lld",
                 static_cast<long long>(seen.peak_bytes), static_cast<long long>(seen.extra_ns),
                 static_cast<long long>(peak), static_cast<long long>(best_.ns));
        return r;
    }

private:
    struct Best {
        int64_t ns = infinite, bytes = infinite;  // bytes: the peak without what is fixed
        ChainPlan plan;
    };

    // Takes a search's cheapest plan if it is better than the best.
    void take(const SearchResult &found, const PeakRule &rules) {
        if (found.all().empty()) return;
        const Step &last = found.all().back();
        const int64_t bytes = rules.one ? last.bytes : space_.chain().in_flight * last.bytes + rules.slab;
        if (last.ns > best_.ns || (last.ns == best_.ns && bytes > best_.bytes)) return;
        ChainPlan plan = rebuild(space_, found.from, last.bytes, last.ns, rules);
        if (last.ns == best_.ns && bytes == best_.bytes && !before(plan, best_.plan)) return;
        best_ = {last.ns, bytes, std::move(plan)};
    }

    void search_with(const Edges &edges, const Bounds &bounds, int64_t limit, const PeakRule &rules, size_t cap) {
        SearchOptions o;
        o.cancellation = space_.cancellation();
        o.limit = limit, o.bounds = &bounds, o.most_ns = best_.ns, o.cap = cap;
        o.loss_bytes = rules.one ? space_.chain().loss_bytes : 0;
        search(edges, o, found_);
        take(found_, rules);
    }
    static void drop(Edges &edges, const Bounds &bounds, int64_t most) {
        for (size_t i = 0; i < edges.size(); ++i)
            std::erase_if(edges[i], [&](const Edge &e) { return !bounds.may(static_cast<int64_t>(i), e, most); });
    }
    // From rough to exact; what the last search leaves out counts.
    void refine(Edges &edges, const Bounds &bounds, int64_t limit, const PeakRule &rules) {
        const int64_t error = error_of(edges);
        error_ns_ = std::max(error_ns_, error);
        for (size_t few : {size_t{48}, size_t{768}}) {
            if (few >= cap_ || (few > 48 && best_.ns <= bounds.all())) break;
            search_with(edges, bounds, limit, rules, few);
            if (found_.left_out_ns == infinite) return;
            drop(edges, bounds, best_.ns);
        }
        search_with(edges, bounds, limit, rules, cap_);
        if (found_.left_out_ns < infinite) others_ns_ = std::min(others_ns_, found_.left_out_ns - error);
    }

    void run_one() {
        Edges edges = edges_of_one(space_, budget_);
        if (has_units(edges)) {
            // Where single layers suffice, the best of them shows which units may be worth a look.
            Edges singles = edges;
            for (auto &list : singles) std::erase_if(list, [](const Edge &e) { return e.arc.count > 1; });
            if (least_bytes(singles, space_, space_.chain().loss_bytes) <= budget_) {
                const Bounds bounds(edges, budget_, space_.cancellation());
                search_with(singles, bounds, budget_, {}, std::min<size_t>(cap_, 48));
                drop(edges, bounds, best_.ns);
            }
            fill_units(space_, edges, budget_);
        }
        const Bounds bounds(edges, budget_, space_.cancellation());
        if (best_.ns < infinite) drop(edges, bounds, best_.ns);
        refine(edges, bounds, budget_, {});
    }

    void run_several() {
        const int64_t tapes = space_.chain().in_flight;
        const Gains by_slab = gains_of(space_, budget_);
        const std::vector<Gain> &gains = by_slab.all;
        Edges all(static_cast<size_t>(space_.layers()));
        for (const Gain &g : gains) {
            poll(space_.cancellation(), searching);
            apply(by_slab, g, all);
        }
        const auto stack_with = [&](int64_t slab) { return (budget_ - slab) / tapes; };
        const Bounds over_all(all, stack_with(gains.front().slab), space_.cancellation());
        const auto try_slab = [&](const Edges &edges, int64_t slab) {
            const int64_t limit = stack_with(slab);
            if (least_stack(edges) > limit) return;
            const Bounds bounds(edges, limit, space_.cancellation());
            if (bounds.all() > best_.ns) return;
            Edges some = edges;
            if (best_.ns < infinite) drop(some, bounds, best_.ns);
            refine(some, bounds, limit, {false, slab});
        };
        // A few slabs for a plan to compare with, then all at which something comes that a plan no worse may have.
        for (const bool sample : {true, false}) {
            Edges edges(static_cast<size_t>(space_.layers()));
            int64_t slabs = 0, useful = 0;
            for (size_t g = 0; g < gains.size(); ++g) {
                poll(space_.cancellation(), searching);
                apply(by_slab, gains[g], edges);
                if (!sample && useful == 0)
                    useful = std::ranges::any_of(by_slab.layers_of(gains[g]), [&](int64_t layer) {
                        return over_all.may(layer, gains[g].edge, best_.ns, stack_with(gains[g].slab));
                    });
                if (g + 1 < gains.size() && gains[g + 1].slab == gains[g].slab) continue;
                if (sample ? (slabs & (slabs - 1)) == 0 : useful > 0) try_slab(edges, gains[g].slab);
                ++slabs, useful = 0;
            }
        }
    }

    Space space_;
    int64_t budget_;  // without what is fixed
    size_t cap_;
    Best best_;
    int64_t others_ns_ = infinite;  // what was left out costs at least this
    int64_t error_ns_ = 0;          // and what was not may cost less than it seems by this
    SearchResult found_;
};

}  // namespace

Result solve(const Chain &chain, int64_t budget_bytes, int64_t label_cap, Cancellation *cancellation) {
    check(chain);
    if (label_cap < 0) fail(MDLM_ERROR_ARGUMENT, "label_cap = %lld: expected >= 0", static_cast<long long>(label_cap));
    return Solver(chain, std::clamp<int64_t>(budget_bytes, -1, infinite - 1) - chain.fixed_bytes, label_cap,
                  cancellation)
        .run();
}

}  // namespace mdlm::planner

// Every budget at once: the search without bounds, each of its results a plan.
#include <algorithm>

#include "planner/edges.hpp"

namespace mdlm::planner {
namespace {

// A plan that is to be found again.
struct Found {
    int64_t peak, ns;  // peak without what is fixed
    int64_t slab, stack;
};

// Leaves those that no other one beats. Peaks rise and times fall; equals stay, they may be other plans.
void keep_best(std::vector<Found> &all) {
    std::stable_sort(all.begin(), all.end(), [](const Found &a, const Found &b) { return a.peak != b.peak ? a.peak < b.peak : a.ns < b.ns; });
    int64_t ns = infinite, peak = -1;
    std::erase_if(all, [&](const Found &f) {
        if (f.ns > ns || (f.ns == ns && f.peak != peak)) return true;
        ns = f.ns, peak = f.peak;
        return false;
    });
}

}  // namespace

Frontier frontier(const Chain &chain, int64_t point_cap) {
    check(chain);
    if (point_cap < 0) fail(MDLM_ERROR_ARGUMENT, "point_cap = %lld: expected >= 0", static_cast<long long>(point_cap));
    const auto cap = static_cast<size_t>(point_cap == 0 ? int64_t{1} << 16 : point_cap);
    Space space(chain);
    space.set_limit(infinite - 1);
    space.set_step_cap(point_cap);
    Frontier out;
    Search found;
    SearchOptions o;
    o.limit = infinite - 1, o.cap = cap;
    const auto push = [&](Plan plan) {
        const Measure m = simulate(chain, plan);
        if (!out.points.empty() && out.points.back().peak_bytes == m.peak_bytes && out.points.back().extra_ns == m.extra_ns) {
            if (before(plan, out.points.back().plan)) out.points.back().plan = std::move(plan);
            return;
        }
        while (!out.points.empty() && out.points.back().peak_bytes >= m.peak_bytes) out.points.pop_back();  // only after steps were left out
        if (out.points.empty() || m.extra_ns < out.points.back().extra_ns) out.points.push_back({m.peak_bytes, m.extra_ns, std::move(plan)});
    };
    if (chain.one_stack()) {
        Edges edges = edges_of_one(space, o.limit);
        fill_units(space, edges, o.limit);
        o.loss_bytes = chain.loss_bytes;
        search(edges, o, found);
        out.gap_ns = found.error_ns;
        for (const Step &s : found.all()) push(rebuild(space, found.from, s.bytes, s.ns, {}));
    } else {
        const std::vector<Gain> gains = gains_of(space, o.limit);
        std::vector<Found> best;
        // Twice: to see which plans are best at all, and to find those again.
        for (const bool again : {false, true}) {
            Edges edges(static_cast<size_t>(chain.size()));
            std::vector<Plan> plans(again ? best.size() : 0);
            for (size_t g = 0; g < gains.size(); ++g) {
                apply(gains[g], edges);
                const int64_t slab = gains[g].slab;
                if (g + 1 < gains.size() && gains[g + 1].slab == slab) continue;
                if (again && std::none_of(best.begin(), best.end(), [&](const Found &f) { return f.slab == slab; })) continue;
                if (least_stack(edges) >= infinite) continue;
                search(edges, o, found);
                if (!again) {
                    for (const Step &s : found.all()) best.push_back({chain.in_flight * s.bytes + slab, s.ns, slab, s.bytes});
                    keep_best(best);
                    out.gap_ns = std::max(out.gap_ns, found.error_ns);
                } else {
                    for (size_t i = 0; i < best.size(); ++i)
                        if (best[i].slab == slab) plans[i] = rebuild(space, found.from, best[i].stack, best[i].ns, {false, slab});
                }
            }
            for (Plan &plan : plans) push(std::move(plan));
        }
    }
    out.optimal = out.gap_ns == 0;
    return out;
}

}  // namespace mdlm::planner

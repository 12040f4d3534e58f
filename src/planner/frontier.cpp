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

// Several tapes: for every slab that may be of use the frontier of what one stack can hold, and the best of all.
class Several {
public:
    Several(Space &space, SearchOptions options)
        : space_(space), options_(options), tapes_(space.chain().in_flight), gains_(gains_of(space, options.limit)) {}

    // Calls push(plan), peaks rising, equals one after the other; returns by how much costs may be too high.
    template <class Push>
    int64_t run(Push push) {
        sample();
        all_that_may_be_better();
        // The plans of what is left, in a second walk over their slabs.
        std::vector<Plan> plans(best_.size());
        walk([&](const Edges &edges, size_t, size_t, int64_t slab) {
            if (std::none_of(best_.begin(), best_.end(), [&](const Found &f) { return f.slab == slab; })) return;
            search(edges, options_, found_);
            for (size_t i = 0; i < best_.size(); ++i)
                if (best_[i].slab == slab) plans[i] = rebuild(space_, found_.from, best_[i].stack, best_[i].ns, {false, slab});
        });
        for (Plan &plan : plans) push(std::move(plan));
        return error_ns_;
    }

private:
    // Calls visit(edges, first and end of the gains that came last, slab) for every slab with which any plan fits.
    template <class Visit>
    void walk(Visit visit) {
        Edges edges(static_cast<size_t>(space_.layers()));
        size_t first = 0;
        for (size_t g = 0; g < gains_.size(); ++g) {
            apply(gains_[g], edges);
            if (g + 1 < gains_.size() && gains_[g + 1].slab == gains_[g].slab) continue;
            if (least_stack(edges) < infinite) visit(edges, first, g + 1, gains_[g].slab);
            first = g + 1;
        }
    }
    void take(const Edges &edges, int64_t slab) {
        search(edges, options_, found_);
        error_ns_ = std::max(error_ns_, found_.error_ns);
        for (const Step &s : found_.all()) best_.push_back({tapes_ * s.bytes + slab, s.ns, slab, s.bytes});
        keep_best(best_);
    }

    // A few slabs, so that there is something to compare with.
    void sample() {
        size_t n = 0, last = 0;
        walk([&](const Edges &, size_t, size_t, int64_t) { ++last; });
        walk([&](const Edges &edges, size_t, size_t, int64_t slab) {
            ++n;
            if ((n & (n - 1)) != 0 && n != last) return;
            take(edges, slab);
            tried_.push_back(slab);
        });
    }

    void all_that_may_be_better() {
        Edges all(static_cast<size_t>(space_.layers()));
        for (const Gain &g : gains_) apply(g, all);
        std::vector<int64_t> budgets;
        const int64_t low = best_.front().peak / tapes_, high = best_.back().peak / tapes_;
        for (int64_t i = 0; i <= 24; ++i) budgets.push_back(low + (high - low) / 24 * i);
        const Bounds bounds(all, budgets);
        std::vector<Bounds::Priced> items;
        std::vector<__int128> priced;
        walk([&](const Edges &edges, size_t first, size_t end, int64_t slab) {
            for (size_t g = first; g < end; ++g) items.push_back({gains_[g].layer, &gains_[g].edge});
            const bool tried = std::find(tried_.begin(), tried_.end(), slab) != tried_.end();
            bounds.priced_with(items, priced);
            if (!tried && may_be_better(bounds, priced, edges, slab)) take(edges, slab);
            items.clear();
        });
    }
    // May a plan with the items behind `priced` be better than the best at any peak, or as good as one of them?
    bool may_be_better(const Bounds &bounds, const std::vector<__int128> &priced, const Edges &edges, int64_t slab) const {
        const auto least = [&](int64_t peak) { return peak < slab ? infinite : bounds.at_least(priced, (peak - slab) / tapes_); };
        if (tapes_ * least_stack(edges) + slab < best_.front().peak) return true;
        for (size_t j = 0; j < best_.size(); ++j) {
            if (least(best_[j].peak) <= best_[j].ns) return true;
            const int64_t next = j + 1 < best_.size() ? best_[j + 1].peak - 1 : infinite - 1;
            if (least(next) < best_[j].ns) return true;
        }
        return false;
    }

    Space &space_;
    SearchOptions options_;
    int64_t tapes_;
    std::vector<Gain> gains_;
    std::vector<Found> best_;
    std::vector<int64_t> tried_;
    int64_t error_ns_ = 0;
    Search found_;
};

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
        out.gap_ns = Several(space, o).run(push);
    }
    out.optimal = out.gap_ns == 0;
    return out;
}

}  // namespace mdlm::planner

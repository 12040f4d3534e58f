// SPDX-License-Identifier: Apache-2.0
// Every budget at once: the search without bounds, each of its results a plan.
#include <algorithm>
#include <memory>

#include "planner/edges.hpp"

namespace mdlm::planner {
namespace {

// A plan that is to be found again.
struct Found {
    int64_t peak, ns;  // peak without what is fixed
    int64_t slab, stack;
};

constexpr int64_t most_step_bytes = int64_t{128} << 20, most_plan_bytes = int64_t{64} << 20,
                  most_points = int64_t{1} << 16;

// Points of a frontier whose plans are kept: an item for each layer, and as many for units.
size_t most_with_plans(const Chain &chain) {
    return static_cast<size_t>(
        std::max<int64_t>(most_plan_bytes / (2 * chain.size() * static_cast<int64_t>(sizeof(PlanItem))), 2));
}

// Leaves those that no other one beats. Peaks rise and times fall; equals stay, they may be other plans.
void keep_best(std::vector<Found> &all) {
    std::stable_sort(all.begin(), all.end(),
                     [](const Found &a, const Found &b) { return a.peak != b.peak ? a.peak < b.peak : a.ns < b.ns; });
    int64_t ns = infinite, peak = -1;
    std::erase_if(all, [&](const Found &f) {
        if (f.ns > ns || (f.ns == ns && f.peak != peak)) return true;
        ns = f.ns, peak = f.peak;
        return false;
    });
}

// Leaves at most so many, the first among them; returns by how much the cost at any peak may have risen.
int64_t thin(std::vector<Found> &all, size_t most) {
    if (all.size() <= most) return 0;
    Steps steps;
    for (const Found &f : all)
        if (steps.empty() || f.ns < steps.back().ns) steps.push_back({f.peak, f.ns});
    const int64_t error = thin(steps, most);
    size_t at = 0;
    std::erase_if(all, [&](const Found &f) {  // of equals the first
        const bool kept = at < steps.size() && f.peak == steps[at].bytes;
        at += kept;
        return !kept;
    });
    return error;
}

// Budgets from the first point to the last, for bounds on all between.
std::vector<int64_t> spread(int64_t low, int64_t high) {
    std::vector<int64_t> budgets;
    for (int64_t i = 0; i <= 24; ++i) budgets.push_back(low + (high - low) / 24 * i);
    return budgets;
}

// The most by which some plan may cost less than the frontier, at any budget: what was left out on the way adds up to
// `error`, but often bounds on all plans say that it cannot have mattered so much. stack: bytes that a plan's stack can
// have, given its peak.
template <class Stack>
int64_t gap_of(const std::vector<FrontierPoint> &points, const Edges &edges, int64_t error, Cancellation *cancellation,
               Stack stack) {
    if (error == 0 || points.empty()) return error;
    const Bounds bounds(edges, spread(stack(points.front().peak_bytes), stack(points.back().peak_bytes)), cancellation);
    int64_t gap = points.back().extra_ns - std::min(points.back().extra_ns, bounds.all(infinite / 2));
    for (size_t i = 0; i + 1 < points.size(); ++i) {
        poll(cancellation, searching);
        gap = std::max(gap, points[i].extra_ns - bounds.all(stack(points[i + 1].peak_bytes - 1)));
    }
    return std::min(gap, error);
}

// Bounds at prices from the least that one stack needs to the most that it can hold, made when first asked for.
class Near {
public:
    Near(const Edges &edges, Cancellation *cancellation) : edges_(edges), cancellation_(cancellation) {}
    const Bounds &operator()() {
        if (bounds_ == nullptr) {
            int64_t most = 0;
            for (const auto &list : edges_) {
                int64_t left = 0;
                for (const Edge &e : list) left = std::max(left, e.arc.left);
                most += left;
            }
            bounds_ = std::make_unique<Bounds>(edges_, spread(least_stack(edges_), most), cancellation_);
        }
        return *bounds_;
    }

private:
    const Edges &edges_;
    Cancellation *cancellation_;
    std::unique_ptr<Bounds> bounds_;
};

// Several tapes: for every slab that may be of use the frontier of what one stack can hold, and the best of all.
class Several {
public:
    Several(Space &space, SearchOptions options, size_t most)
        : space_(space), options_(options), most_(most), tapes_(space.chain().in_flight),
          by_slab_(gains_of(space, options.limit)), every_edge_(all_of(by_slab_, space)),
          near_(every_edge_, space.cancellation()) {
        options_.near = std::ref(near_);
    }

    // Calls push(plan), or point(peak, ns), peaks rising, equals one after the other; returns by how much costs may be
    // too high.
    template <class Push, class AddPoint>
    int64_t run(Push push, AddPoint point, bool with_plans) {
        sample();
        all_that_may_be_better();
        if (!with_plans) {
            for (const Found &f : best_) point(f.peak, f.ns);
            return error_ns_ + left_out_ns_;
        }
        // The plans of what is left, in a second walk over their slabs.
        std::vector<ChainPlan> plans(best_.size());
        walk([&](const Edges &edges, size_t, size_t, int64_t slab) {
            if (std::none_of(best_.begin(), best_.end(), [&](const Found &f) { return f.slab == slab; })) return;
            search(edges, options_, found_);
            for (size_t i = 0; i < best_.size(); ++i)
                if (best_[i].slab == slab)
                    plans[i] = rebuild(space_, found_.from, best_[i].stack, best_[i].ns, {false, slab});
        });
        for (ChainPlan &plan : plans) push(std::move(plan));
        return error_ns_ + left_out_ns_;
    }

    // Whatever the slab, each item as cheap as it can be.
    const Edges &every_edge() const { return every_edge_; }

private:
    static Edges all_of(const Gains &gains, const Space &space) {
        Edges all(static_cast<size_t>(space.layers()));
        for (const Gain &g : gains.all) {
            poll(space.cancellation(), searching);
            apply(gains, g, all);
        }
        return all;
    }

    // Calls visit(edges, first and end of the gains that came last, slab) for every slab with which any plan fits.
    template <class Visit>
    void walk(Visit visit) {
        Edges edges(static_cast<size_t>(space_.layers()));
        size_t first = 0;
        for (size_t g = 0; g < gains_.size(); ++g) {
            poll(space_.cancellation(), searching);
            apply(by_slab_, gains_[g], edges);
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
        left_out_ns_ += thin(best_, most_);
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
        const Bounds bounds(every_edge_, spread(best_.front().peak / tapes_, best_.back().peak / tapes_),
                            space_.cancellation());
        std::vector<Bounds::Priced> items;
        std::vector<__int128> priced;
        walk([&](const Edges &edges, size_t first, size_t end, int64_t slab) {
            for (size_t g = first; g < end; ++g)
                for (int32_t layer : by_slab_.layers_of(gains_[g])) items.push_back({layer, &gains_[g].edge});
            const bool tried = std::find(tried_.begin(), tried_.end(), slab) != tried_.end();
            bounds.priced_with(items, priced);
            if (!tried && may_be_better(bounds, priced, edges, slab)) take(edges, slab);
            items.clear();
        });
    }
    // May a plan with the items behind `priced` be better than the best at any peak, or as good as one of them?
    bool may_be_better(const Bounds &bounds, const std::vector<__int128> &priced, const Edges &edges,
                       int64_t slab) const {
        const auto least = [&](int64_t peak) {
            return peak < slab ? infinite : bounds.at_least(priced, (peak - slab) / tapes_);
        };
        if (tapes_ * least_stack(edges) + slab < best_.front().peak) return true;
        for (size_t j = 0; j < best_.size(); ++j) {
            poll(space_.cancellation(), searching);
            if (least(best_[j].peak) <= best_[j].ns) return true;
            const int64_t next = j + 1 < best_.size() ? best_[j + 1].peak - 1 : infinite - 1;
            if (least(next) < best_[j].ns) return true;
        }
        return false;
    }

    Space &space_;
    SearchOptions options_;
    size_t most_;
    int64_t tapes_;
    Gains by_slab_;
    const std::vector<Gain> &gains_ = by_slab_.all;
    Edges every_edge_;
    Near near_;
    std::vector<Found> best_;
    std::vector<int64_t> tried_;
    int64_t error_ns_ = 0, left_out_ns_ = 0;
    SearchResult found_;
};

}  // namespace

Frontier frontier(const Chain &chain, int64_t point_cap, bool with_plans, Cancellation *cancellation) {
    check(chain);
    if (point_cap < 0) fail(MDLM_ERROR_ARGUMENT, "point_cap = %lld: expected >= 0", static_cast<long long>(point_cap));
    const int64_t fitting =
        std::clamp<int64_t>(most_step_bytes / static_cast<int64_t>(sizeof(Step)) / (chain.size() + 1), 1, most_points);
    const auto cap = static_cast<size_t>(point_cap == 0 ? fitting : point_cap);
    const size_t most = with_plans ? std::min(cap, most_with_plans(chain)) : cap;
    Space space(chain, cancellation);
    space.set_limit(infinite - 1);
    space.set_step_cap(point_cap);
    Frontier out;
    SearchResult found;
    SearchOptions o;
    o.limit = infinite - 1, o.cap = cap, o.cancellation = cancellation;
    const auto push = [&](ChainPlan plan) {
        const PlanCost m = simulate(chain, plan);
        if (!out.points.empty() && out.points.back().peak_bytes == m.peak_bytes &&
            out.points.back().extra_ns == m.extra_ns) {
            if (before(plan, out.points.back().plan)) out.points.back().plan = std::move(plan);
            return;
        }
        while (!out.points.empty() && out.points.back().peak_bytes >= m.peak_bytes)
            out.points.pop_back();  // only after steps were left out
        if (out.points.empty() || m.extra_ns < out.points.back().extra_ns)
            out.points.push_back({m.peak_bytes, m.extra_ns, std::move(plan)});
    };
    const auto point = [&](int64_t peak, int64_t ns) {  // what some plan costs, whose peak is no higher
        if (out.points.empty() || ns < out.points.back().extra_ns)
            out.points.push_back({chain.fixed_bytes + peak, ns, {}});
    };
    if (chain.one_stack()) {
        Edges edges = edges_of_one(space, o.limit);
        fill_units(space, edges, o.limit);
        o.loss_bytes = chain.loss_bytes;
        Near near(edges, cancellation);
        o.near = std::ref(near);
        search(edges, o, found);
        Steps steps = found.all();
        const int64_t error = found.error_ns + thin(steps, most, cancellation);
        for (const Step &s : steps)
            with_plans ? push(rebuild(space, found.from, s.bytes, s.ns, {})) : point(s.bytes, s.ns);
        out.gap_ns =
            gap_of(out.points, edges, error, cancellation, [&](int64_t peak) { return peak - chain.fixed_bytes; });
    } else {
        Several several(space, o, most);
        const int64_t error = several.run(push, point, with_plans);
        out.gap_ns = gap_of(out.points, several.every_edge(), error, cancellation,
                            [&](int64_t peak) { return (peak - chain.fixed_bytes) / chain.in_flight; });
    }
    out.optimal = out.gap_ns == 0;
    return out;
}

}  // namespace mdlm::planner

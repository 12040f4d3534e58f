// SPDX-License-Identifier: Apache-2.0
#include "planner/search.hpp"

#include <algorithm>
#include <array>

#include "base/status.hpp"

namespace mdlm::planner {
namespace {

// Keeps the first step and those with the lowest bounds; returns the lowest bound that went.
int64_t keep_best(Steps &steps, std::vector<int64_t> &low, size_t most) {
    if (steps.size() <= most) return infinite;
    std::vector<int64_t> sorted(low.begin() + 1, low.end());
    const size_t others = most - 1;  // besides the first
    std::nth_element(sorted.begin(), sorted.begin() + static_cast<std::ptrdiff_t>(others), sorted.end());
    const int64_t first_out = sorted[others];  // of equals, as many as there is room for
    size_t equals = others - static_cast<size_t>(
                                 std::count_if(low.begin() + 1, low.end(), [&](int64_t v) { return v < first_out; }));
    size_t kept = 1;
    for (size_t i = 1; i < steps.size(); ++i) {
        if (low[i] > first_out || (low[i] == first_out && equals == 0)) continue;
        equals -= low[i] == first_out;
        steps[kept++] = steps[i];
    }
    steps.resize(kept);
    return first_out;
}

// Keeps the first and the last step, and in each of equal stretches of bytes between the one with the least slack;
// returns by how much the cost at any number of bytes may have risen.
int64_t keep_nearest(Steps &steps, const std::vector<int64_t> &slack, size_t most) {
    const int64_t first = steps.front().bytes, stretches = std::max<int64_t>(static_cast<int64_t>(most) - 2, 1);
    const int64_t width = (steps.back().bytes - first) / stretches + 1;
    size_t kept = 1;
    int64_t error = 0;
    for (size_t i = 1; i < steps.size();) {
        size_t end = i + 1, best = i;
        const int64_t stretch = (steps[i].bytes - first) / width;
        for (; end < steps.size() && (steps[end].bytes - first) / width == stretch; ++end)
            if (slack[end] < slack[best]) best = end;
        if (end == steps.size()) best = end - 1;
        if (best > i) error = std::max(error, steps[kept - 1].ns - steps[best - 1].ns);
        const int64_t cheapest = steps[end - 1].ns;
        steps[kept] = steps[best];
        error = std::max(error, steps[kept++].ns - cheapest);
        i = end;
    }
    steps.resize(kept);
    return error;
}

}  // namespace

void search(const Edges &edges, const SearchOptions &o, SearchResult &out) {
    const size_t layers = edges.size();
    out.left_out_ns = infinite;
    out.from.resize(layers + 1);
    out.from[layers] = {{o.loss_bytes, 0}};
    Merge merge(o.cancellation);
    std::vector<int64_t> low;
    std::vector<int64_t> error(layers + 1, 0);
    Steps steps;
    for (size_t i = layers; i-- > 0;) {
        const auto layer = static_cast<int64_t>(i);
        const int64_t limit = o.bounds != nullptr ? o.limit - o.bounds->least_before(layer) : o.limit;
        merge.clear();
        for (const Edge &e : edges[i]) {
            poll(o.cancellation, searching);
            const Steps &rest = out.from[i + static_cast<size_t>(e.arc.count)];
            if (e.arc.floor > limit || rest.empty() || (e.inner != nullptr && e.inner->empty())) continue;
            error[i] = std::max(error[i], error[i + static_cast<size_t>(e.arc.count)] + e.error_ns);
            merge.add({&rest, e.inner, e.arc.left, e.arc.floor, e.arc.ns});
        }
        merge.run(limit, steps);
        if (o.bounds != nullptr && !steps.empty()) {
            o.bounds->through(layer, steps, low);
            size_t kept = 0;
            for (size_t s = 0; s < steps.size(); ++s)
                if (low[s] <= o.most_ns) steps[kept] = steps[s], low[kept++] = low[s];
            steps.resize(kept), low.resize(kept);
            out.left_out_ns = std::min(out.left_out_ns, keep_best(steps, low, o.cap));
        } else if (o.near != nullptr && steps.size() > o.cap && o.cap > 2) {
            o.near().slack(layer, steps, low);
            error[i] += keep_nearest(steps, low, o.cap);
        } else {
            error[i] += thin(steps, o.cap, o.cancellation);
        }
        out.from[i].assign(steps.begin(), steps.end());
    }
    out.error_ns = error[0];
}

bool before(const ChainPlan &a, const ChainPlan &b) {
    const auto key = [](const PlanItem &i) { return std::array<int32_t, 3>{i.count > 1, i.count, i.choice}; };
    return std::lexicographical_compare(a.begin(), a.end(), b.begin(), b.end(),
                                        [&](const PlanItem &x, const PlanItem &y) { return key(x) < key(y); });
}

namespace {

// A stretch of layers whose items rebuild has yet to find: the whole chain, or the inside of a unit.
struct PendingLayers {
    int64_t at, end;    // layers yet to do
    int64_t inner;      // nesting left for units among them
    int64_t bytes, ns;  // available to them
    std::ptrdiff_t of;  // the unit that they are inside of, in the plan; -1: none
};

}  // namespace

ChainPlan rebuild(Space &space, const std::vector<Steps> &from, int64_t bytes, int64_t ns, const PeakRule &rules) {
    ChainPlan plan;
    std::vector<Arc> arcs;
    std::vector<PendingLayers> pending = {{0, space.layers(), space.nested(), bytes, ns, -1}};
    while (!pending.empty()) {
        poll(space.cancellation(), searching);
        PendingLayers &t = pending.back();
        if (t.at == t.end) {
            if (t.of >= 0)
                plan[static_cast<size_t>(t.of)].inside =
                    static_cast<int32_t>(static_cast<std::ptrdiff_t>(plan.size()) - t.of - 1);
            pending.pop_back();
            continue;
        }
        const bool outer = t.of < 0;
        if (outer) space.items_outside(t.at, arcs);
        else space.items_inside(t.at, t.end, t.inner, arcs);
        bool found = false;
        for (const Arc &a : arcs) {
            // What the item may use, and what is left for those behind it.
            const int64_t available = outer && !rules.one ? rules.slab + a.left : t.bytes;
            if (a.floor > available) continue;
            const int64_t next = t.at + a.count;
            const int64_t rest = outer           ? cost_at(from[static_cast<size_t>(next)], t.bytes - a.left)
                                 : next == t.end ? 0
                                                 : cost_at(space.inside(next, t.end - next, t.inner), t.bytes - a.left);
            const int64_t deeper = outer ? t.inner : t.inner - 1;
            if (rest >= infinite || a.ns + rest > t.ns) continue;
            int64_t inside = 0;
            if (a.count > 1) {
                if (a.ns + rest + space.least_ns(t.at, a.count) > t.ns) continue;
                inside = cost_at(space.inside(t.at, a.count, deeper), available);
                if (inside >= infinite || a.ns + rest + inside > t.ns) continue;
            }
            const auto index = static_cast<std::ptrdiff_t>(plan.size());
            plan.push_back({static_cast<int32_t>(t.at), a.count, a.choice, 0});
            const PendingLayers unit = {t.at, next, deeper, available, inside, index};
            t.at = next, t.bytes -= a.left, t.ns = rest;
            if (a.count > 1) pending.push_back(unit);
            found = true;
            break;
        }
        if (!found)
            fail(MDLM_ERROR_INTERNAL, "the planner cannot find its plan again at layer %lld",
                 static_cast<long long>(t.at));
    }
    return plan;
}

}  // namespace mdlm::planner

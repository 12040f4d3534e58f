// SPDX-License-Identifier: Apache-2.0
#include "planner/edges.hpp"

#include <algorithm>
#include <map>

namespace mdlm::planner {
namespace {

Edge edge_of(const Arc &arc, int64_t loss) { return {arc, nullptr, 0, arc.ns, std::max(arc.floor, arc.left + loss)}; }

// Numbers places, and lists the layers of each.
class Places {
public:
    explicit Places(std::vector<std::vector<int32_t>> &layers) : layers_(layers) {}
    // Of an item at a layer; is_new says whether an alike one was seen before.
    size_t of(const Space &space, int64_t layer, int64_t count, bool *is_new) {
        const auto [at, added] = seen_.try_emplace(space.alike(layer, count), layers_.size());
        if (added) layers_.emplace_back();
        layers_[at->second].push_back(static_cast<int32_t>(layer));
        *is_new = added;
        return at->second;
    }

private:
    std::vector<std::vector<int32_t>> &layers_;
    std::map<std::pair<bool, int64_t>, size_t> seen_;
};

// Every item that begins at some layer, once for all that are alike: visit(place, layer, arc).
template <class Visit>
void each_item(const Space &space, bool singles, bool with_units, Places &places, Visit visit) {
    std::vector<Arc> units;
    bool is_new = false;
    for (int64_t i = 0; i < space.layers(); ++i) {
        poll(space.cancellation(), searching);
        if (singles) {
            const size_t place = places.of(space, i, 1, &is_new);
            for (const Arc &a : space.policies(i))
                if (is_new) visit(place, i, a);
        }
        if (!with_units) continue;
        space.units(i, units);
        size_t place = 0;
        for (int32_t count = 0; const Arc &a : units) {
            if (a.count != count) place = places.of(space, i, a.count, &is_new);
            count = a.count;
            if (is_new) visit(place, i, a);
        }
    }
}

// Every item with the least slab that it needs.
void items_by_slab(const Space &space, bool with_units, Places &places, std::vector<Gain> &all) {
    each_item(space, true, with_units, places, [&](size_t place, int64_t i, Arc arc) {
        int64_t need = arc.floor, least_ns = 0;
        if (arc.count > 1) {
            const int64_t inside = space.least_bytes(i, arc.count);
            if (inside >= infinite) return;
            need = std::max(need, inside), least_ns = space.least_ns(i, arc.count);
        }
        const int64_t slab = std::max(need - arc.left, space.chain().loss_bytes);
        arc.floor = arc.left, arc.ns += least_ns;
        all.push_back({slab, place, edge_of(arc, 0)});
    });
}

void sort_by_slab(std::vector<Gain> &gains, Cancellation *cancellation) {
    std::stable_sort(gains.begin(), gains.end(), [&](const Gain &a, const Gain &b) {
        poll(cancellation, searching);  // there may be tens of millions
        return a.slab < b.slab;
    });
}

}  // namespace

Edges edges_of_one(const Space &space, int64_t limit) {
    const int64_t loss = space.chain().loss_bytes;
    Edges edges(static_cast<size_t>(space.layers()));
    std::vector<Arc> units;
    for (int64_t i = 0; i < space.layers(); ++i) {
        poll(space.cancellation(), searching);
        auto &list = edges[static_cast<size_t>(i)];
        for (const Arc &a : space.policies(i))
            if (a.floor <= limit) list.push_back(edge_of(a, loss));
        space.units(i, units);
        for (const Arc &a : units) {
            Edge e = edge_of(a, loss);
            const int64_t least = space.least_bytes(i, a.count);
            if (least >= infinite || std::max(a.floor, least) > limit) continue;
            e.low_ns += space.least_ns(i, a.count);
            e.tail = std::max(e.tail, least);
            list.push_back(e);
        }
    }
    return edges;
}

void fill_units(Space &space, Edges &edges, int64_t limit) {
    for (size_t i = 0; i < edges.size(); ++i) {
        poll(space.cancellation(), searching);
        size_t kept = 0;
        for (Edge &e : edges[i]) {
            if (e.arc.count > 1) {
                e.inner = &space.inside(static_cast<int64_t>(i), e.arc.count);
                const int64_t inside = cost_at(*e.inner, limit);
                if (inside >= infinite) continue;
                e.error_ns = space.error(static_cast<int64_t>(i), e.arc.count);
                e.low_ns =
                    e.arc.ns + std::max(inside - e.error_ns, space.least_ns(static_cast<int64_t>(i), e.arc.count));
            }
            edges[i][kept++] = e;
        }
        edges[i].resize(kept);
    }
}

int64_t least_bytes(const Edges &edges, const Space &space, int64_t loss_bytes) {
    std::vector<int64_t> least(edges.size() + 1, infinite);
    least.back() = loss_bytes;
    for (size_t i = edges.size(); i-- > 0;)
        for (const Edge &e : edges[i]) {
            int64_t need = std::max(e.arc.floor, least[i + static_cast<size_t>(e.arc.count)] + e.arc.left);
            if (e.arc.count > 1) need = std::max(need, space.least_bytes(static_cast<int64_t>(i), e.arc.count));
            least[i] = std::min(least[i], need);
        }
    return least[0];
}

int64_t least_stack(const Edges &edges) {
    std::vector<int64_t> least(edges.size() + 1, infinite);
    least.back() = 0;
    for (size_t i = edges.size(); i-- > 0;)
        for (const Edge &e : edges[i])
            least[i] = std::min(least[i], least[i + static_cast<size_t>(e.arc.count)] + e.arc.left);
    return least[0];
}

int64_t error_of(const Edges &edges) {
    std::vector<int64_t> error(edges.size() + 1, 0);
    for (size_t i = edges.size(); i-- > 0;)
        for (const Edge &e : edges[i])
            error[i] = std::max(error[i], error[i + static_cast<size_t>(e.arc.count)] + e.error_ns);
    return error[0];
}

bool has_units(const Edges &edges) {
    for (const auto &list : edges)
        for (const Edge &e : list)
            if (e.arc.count > 1) return true;
    return false;
}

Gains gains_of(Space &space, int64_t limit) {
    Gains gains;
    Places places(gains.layers);
    items_by_slab(space, false, places, gains.all);
    each_item(space, false, true, places, [&](size_t place, int64_t i, const Arc &a) {
        if (a.floor > limit) return;
        const int64_t least = std::max(a.floor - a.left, space.chain().loss_bytes);
        const Steps &inside = space.inside(i, a.count);
        for (size_t s = 0; s < inside.size(); ++s) {
            poll(space.cancellation(), searching);
            if (s + 1 < inside.size() && inside[s + 1].bytes - a.left <= least) continue;  // the next fits as well
            Arc arc = a;
            arc.floor = arc.left, arc.ns += inside[s].ns;
            Gain gain{std::max(least, inside[s].bytes - a.left), place, edge_of(arc, 0)};
            gain.edge.error_ns = space.error(i, a.count), gain.edge.low_ns -= gain.edge.error_ns;
            gains.all.push_back(gain);
        }
    });
    std::erase_if(gains.all, [&](const Gain &g) { return g.slab > limit; });
    sort_by_slab(gains.all, space.cancellation());
    return gains;
}

void apply(const Gains &gains, const Gain &gain, Edges &edges) {
    const Arc &arc = gain.edge.arc;
    for (int32_t layer : gains.layers_of(gain)) {
        auto &list = edges[static_cast<size_t>(layer)];
        const auto same = [&](const Edge &e) {
            return arc.count > 1 && e.arc.count == arc.count && e.arc.choice == arc.choice;
        };
        const auto at = std::find_if(list.begin(), list.end(), same);
        if (at != list.end()) *at = gain.edge;
        else list.push_back(gain.edge);
    }
}

int64_t least_bytes_of_several(const Space &space) {
    Gains gains;
    Places places(gains.layers);
    items_by_slab(space, true, places, gains.all);
    sort_by_slab(gains.all, space.cancellation());
    const std::vector<Gain> &all = gains.all;
    int64_t least = infinite;
    Edges edges(static_cast<size_t>(space.layers()));
    // A new item may lower the stack; every slab at which one comes is tried, as long as it is not too much by itself.
    for (size_t g = 0; g < all.size() && all[g].slab < least; ++g) {
        poll(space.cancellation(), searching);
        apply(gains, all[g], edges);
        if (g + 1 < all.size() && all[g + 1].slab == all[g].slab) continue;
        const int64_t stack = least_stack(edges);
        if (stack < infinite) least = std::min(least, space.chain().in_flight * stack + all[g].slab);
    }
    return least;
}

}  // namespace mdlm::planner

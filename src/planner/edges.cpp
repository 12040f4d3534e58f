#include "planner/edges.hpp"

#include <algorithm>

namespace mdlm::planner {
namespace {

Edge edge_of(const Arc &arc, int64_t loss) { return {arc, nullptr, 0, arc.ns, std::max(arc.floor, arc.left + loss)}; }

// Every item with the least slab that it needs.
std::vector<Gain> items_by_slab(const Space &space, bool with_units) {
    std::vector<Gain> all;
    std::vector<Arc> units;
    const auto push = [&](int64_t layer, Arc arc, int64_t need, int64_t least_ns) {
        const int64_t slab = std::max(need - arc.left, space.chain().loss_bytes);
        arc.floor = arc.left, arc.ns += least_ns;
        all.push_back({slab, layer, edge_of(arc, 0)});
    };
    for (int64_t i = 0; i < space.layers(); ++i) {
        for (const Arc &a : space.policies(i)) push(i, a, a.floor, 0);
        if (!with_units) continue;
        space.units(i, units);
        for (const Arc &a : units) {
            const int64_t inside = space.least_bytes(i, a.count);
            if (inside < infinite) push(i, a, std::max(a.floor, inside), space.least_ns(i, a.count));
        }
    }
    return all;
}

void sort_by_slab(std::vector<Gain> &gains) {
    std::stable_sort(gains.begin(), gains.end(), [](const Gain &a, const Gain &b) { return a.slab < b.slab; });
}

}  // namespace

Edges edges_of_one(const Space &space, int64_t limit) {
    const int64_t loss = space.chain().loss_bytes;
    Edges edges(static_cast<size_t>(space.layers()));
    std::vector<Arc> units;
    for (int64_t i = 0; i < space.layers(); ++i) {
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
        size_t kept = 0;
        for (Edge &e : edges[i]) {
            if (e.arc.count > 1) {
                e.inner = &space.inside(static_cast<int64_t>(i), e.arc.count);
                const int64_t inside = cost_at(*e.inner, limit);
                if (inside >= infinite) continue;
                e.error_ns = space.error(static_cast<int64_t>(i), e.arc.count);
                e.low_ns = e.arc.ns + std::max(inside - e.error_ns, space.least_ns(static_cast<int64_t>(i), e.arc.count));
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
        for (const Edge &e : edges[i]) least[i] = std::min(least[i], least[i + static_cast<size_t>(e.arc.count)] + e.arc.left);
    return least[0];
}

int64_t error_of(const Edges &edges) {
    std::vector<int64_t> error(edges.size() + 1, 0);
    for (size_t i = edges.size(); i-- > 0;)
        for (const Edge &e : edges[i]) error[i] = std::max(error[i], error[i + static_cast<size_t>(e.arc.count)] + e.error_ns);
    return error[0];
}

bool has_units(const Edges &edges) {
    for (const auto &list : edges)
        for (const Edge &e : list)
            if (e.arc.count > 1) return true;
    return false;
}

std::vector<Gain> gains_of(Space &space, int64_t limit) {
    std::vector<Gain> gains = items_by_slab(space, false);
    std::vector<Arc> units;
    for (int64_t i = 0; i < space.layers(); ++i) {
        space.units(i, units);
        for (const Arc &a : units) {
            if (a.floor > limit) continue;
            const int64_t least = std::max(a.floor - a.left, space.chain().loss_bytes);
            const Steps &inside = space.inside(i, a.count);
            for (size_t s = 0; s < inside.size(); ++s) {
                if (s + 1 < inside.size() && inside[s + 1].bytes - a.left <= least) continue;  // the next fits as well
                Arc arc = a;
                arc.floor = arc.left, arc.ns += inside[s].ns;
                Gain gain{std::max(least, inside[s].bytes - a.left), i, edge_of(arc, 0)};
                gain.edge.error_ns = space.error(i, a.count), gain.edge.low_ns -= gain.edge.error_ns;
                gains.push_back(gain);
            }
        }
    }
    std::erase_if(gains, [&](const Gain &g) { return g.slab > limit; });
    sort_by_slab(gains);
    return gains;
}

void apply(const Gain &gain, Edges &edges) {
    auto &list = edges[static_cast<size_t>(gain.layer)];
    const Arc &arc = gain.edge.arc;
    if (arc.count > 1)
        for (Edge &e : list)
            if (e.arc.count == arc.count && e.arc.choice == arc.choice) {
                e = gain.edge;
                return;
            }
    list.push_back(gain.edge);
}

int64_t least_bytes_of_several(const Space &space) {
    std::vector<Gain> gains = items_by_slab(space, true);
    sort_by_slab(gains);
    int64_t least = infinite;
    Edges edges(static_cast<size_t>(space.layers()));
    // A new item may lower the stack; every slab at which one comes is tried, as long as it is not too much by itself.
    for (size_t g = 0; g < gains.size() && gains[g].slab < least; ++g) {
        apply(gains[g], edges);
        if (g + 1 < gains.size() && gains[g + 1].slab == gains[g].slab) continue;
        const int64_t stack = least_stack(edges);
        if (stack < infinite) least = std::min(least, space.chain().in_flight * stack + gains[g].slab);
    }
    return least;
}

}  // namespace mdlm::planner

// SPDX-License-Identifier: Apache-2.0
#include "planner/space.hpp"

#include <algorithm>
#include <map>

namespace mdlm::planner {
namespace {

bool no_more(const PolicyCost &a, const PolicyCost &b, bool inside) {
    const uint32_t roles = inside ? role_inside | role_last : role_alone;
    if ((b.roles & roles & ~a.roles) != 0) return false;
    const bool least = a.saved_bytes <= b.saved_bytes && a.extra_ns <= b.extra_ns;
    if (!inside)
        return least && std::max(a.forward_bytes, a.backward_bytes) <= std::max(b.forward_bytes, b.backward_bytes);
    return least && a.forward_bytes <= b.forward_bytes && a.backward_bytes <= b.backward_bytes &&
           a.rebuild_ns <= b.rebuild_ns;
}

// Indices of policies of which no other is as good in everything; the first of equals.
std::vector<int32_t> useful(const std::vector<PolicyCost> &policies, bool inside) {
    std::vector<int32_t> out;
    for (size_t i = 0; i < policies.size(); ++i) {
        if ((policies[i].roles & (inside ? role_inside | role_last : role_alone)) == 0) continue;
        bool needless = false;
        for (size_t j = 0; j < policies.size() && !needless; ++j)
            needless = j != i && no_more(policies[j], policies[i], inside) &&
                       (j < i || !no_more(policies[i], policies[j], inside));
        if (!needless) out.push_back(static_cast<int32_t>(i));
    }
    return out;
}

Arc outside(const PolicyCost &p, size_t choice) {
    return {1, static_cast<int32_t>(choice), p.saved_bytes, std::max(p.forward_bytes, p.backward_bytes), p.extra_ns};
}

std::vector<int64_t> numbers(const LayerType &t) {
    std::vector<int64_t> all = {t.boundary_bytes, t.grad_boundary_bytes, t.forward_ns, t.unsaved_forward_bytes,
                                static_cast<int64_t>(t.policies.size())};
    for (const PolicyCost &p : t.policies)
        all.insert(all.end(), {p.saved_bytes, p.extra_ns, p.forward_bytes, p.backward_bytes, p.rebuild_ns, p.roles});
    for (const UnitInput &u : t.unit_inputs) all.insert(all.end(), {u.saved_bytes, u.restore_ns, u.stays});
    return all;
}

}  // namespace

Space::Space(const Chain &chain, Cancellation *cancellation)
    : chain_(chain), cancellation_(cancellation), merge_(cancellation) {
    if (chain.max_unit_depth > 0) {
        reach_ = std::min(chain.max_unit_layers == 0 ? most_unit_layers : chain.max_unit_layers, chain.size());
        reach_ = std::max<int64_t>(reach_, 1);
    }
    depth_ = reach_ > 1 ? std::min(chain.max_unit_depth, reach_ - 1) : 0;
    forward_ns_.assign(1, 0);
    for (int64_t i = 0; i < layers(); ++i) forward_ns_.push_back(forward_ns_.back() + chain.type(i).forward_ns);
    find_kinds();
    if (depth_ > 0) {
        find_nodes();
        find_least_bytes();
        tables_.assign(static_cast<size_t>(depth_), std::vector<CostTable>(node_count_));
    }
}

void Space::find_kinds() {
    std::map<std::vector<int64_t>, int32_t> seen;
    std::vector<int32_t> kind_of_type;
    for (size_t t = 0; t < chain_.types.size(); ++t)
        kind_of_type.push_back(seen.emplace(numbers(chain_.types[t]), static_cast<int32_t>(t)).first->second);
    for (int32_t type : chain_.layers) kinds_.push_back(kind_of_type[static_cast<size_t>(type)]);
    policies_.resize(chain_.types.size());
    inner_policies_.resize(chain_.types.size());
    for (size_t t = 0; t < chain_.types.size(); ++t) {
        if (kind_of_type[t] != static_cast<int32_t>(t)) continue;
        const auto &all = chain_.types[t].policies;
        for (int32_t i : useful(all, false))
            policies_[t].push_back(outside(all[static_cast<size_t>(i)], static_cast<size_t>(i)));
        if (depth_ > 0) inner_policies_[t] = useful(all, true);
    }
}

// A stretch is what stands before its first layer, the first layer, and the stretch of the rest.
void Space::find_nodes() {
    std::map<std::array<int64_t, 3>, int32_t> seen;
    nodes_.assign(static_cast<size_t>(layers() * reach_), -1);
    for (int64_t i = layers(); i-- > 0;)
        for (int64_t count = 1; count <= std::min(reach_, layers() - i); ++count) {
            poll(cancellation_, searching);
            const int64_t rest = count == 1 ? -1 : static_cast<int64_t>(node(i + 1, count - 1));
            const auto next = static_cast<int32_t>(seen.size());
            const auto found = seen.emplace(std::array{chain_.bytes_before(i), int64_t{kind(i)}, rest}, next).first;
            nodes_[static_cast<size_t>(i * reach_ + count - 1)] = found->second;
        }
    node_count_ = seen.size();
}

void Space::units(int64_t first, std::vector<Arc> &out) const {
    out.clear();
    if (depth_ == 0) return;
    const LayerType &t = chain_.type(first);
    const int64_t end = std::min(layers(), first + reach_);
    int64_t others = 0;  // most that the first pass needs behind the first layer
    for (int64_t last = first + 1; last < end; ++last) {
        others = std::max(others, chain_.type(last).unsaved_forward_bytes);
        const int64_t grad = chain_.type(last).grad_boundary_bytes;
        for (size_t form = 0; form < t.unit_inputs.size(); ++form) {
            const UnitInput &u = t.unit_inputs[form];
            const int64_t apart = u.stays ? 0 : u.saved_bytes;
            out.push_back({static_cast<int32_t>(last - first + 1), static_cast<int32_t>(form), u.saved_bytes,
                           std::max({t.unsaved_forward_bytes + apart, u.saved_bytes + others,
                                     apart + chain_.bytes_before(first) + grad}),
                           u.restore_ns});
        }
    }
}

void Space::policies_inside(int64_t first, int64_t end, bool all, std::vector<Arc> &out) const {
    const LayerType &t = chain_.type(first);
    const int64_t grad = chain_.type(end - 1).grad_boundary_bytes;
    const uint32_t role = first + 1 < end ? role_inside : role_last;
    const auto push = [&](size_t i) {
        const PolicyCost &p = t.policies[i];
        if ((p.roles & role) == 0) return;
        out.push_back({1, static_cast<int32_t>(i), p.saved_bytes, std::max(p.forward_bytes + grad, p.backward_bytes),
                       p.extra_ns + (first + 1 < end ? t.forward_ns : p.rebuild_ns)});
    };
    if (all)
        for (size_t i = 0; i < t.policies.size(); ++i) push(i);
    else
        for (int32_t i : inner_policies_[static_cast<size_t>(kind(first))]) push(static_cast<size_t>(i));
}

// A unit inside that covers its whole unit only adds a forward: it has the same bytes to live in as the unit without
// it.
void Space::units_inside(int64_t first, int64_t end, int64_t inner, std::vector<Arc> &out) const {
    if (inner <= 0) return;
    const LayerType &t = chain_.type(first);
    const int64_t grad = chain_.type(end - 1).grad_boundary_bytes;
    int64_t others = 0;
    for (int64_t last = first + 1; last + 1 < end; ++last) {
        others = std::max(others, chain_.type(last).unsaved_forward_bytes);
        for (size_t form = 0; form < t.unit_inputs.size(); ++form) {
            const UnitInput &u = t.unit_inputs[form];
            const int64_t apart = u.stays ? 0 : u.saved_bytes;
            out.push_back(
                {static_cast<int32_t>(last - first + 1), static_cast<int32_t>(form), u.saved_bytes,
                 std::max({t.unsaved_forward_bytes + apart + grad, u.saved_bytes + others + grad,
                           apart + chain_.bytes_before(first) + chain_.type(last).grad_boundary_bytes}),
                 u.restore_ns + forward_ns_[static_cast<size_t>(last + 1)] - forward_ns_[static_cast<size_t>(first)]});
        }
    }
}

void Space::find_least_bytes() {
    least_bytes_.assign(static_cast<size_t>(depth_), std::vector<int64_t>(node_count_, -1));
    const auto least = [&](int64_t first, int64_t count, int64_t inner) -> int64_t & {
        return least_bytes_[static_cast<size_t>(level(count, inner))][node(first, count)];
    };
    least_rebuild_ns_.assign(chain_.types.size(), 0);
    passed_ns_.assign(1, 0);
    for (int64_t i = 0; i < layers(); ++i) {
        const LayerType &t = chain_.type(i);
        int64_t extra = infinite, rebuild = infinite;
        for (const PolicyCost &p : t.policies) {
            // A layer that is not the last one of this unit may be the last one of a unit inside.
            if ((p.roles & (role_inside | role_last)) != 0) extra = std::min(extra, p.extra_ns);
            if ((p.roles & role_last) != 0) rebuild = std::min(rebuild, p.extra_ns + p.rebuild_ns);
        }
        // Where no policy may stand the bytes say so; the time stays a number that can be added up.
        if (extra == infinite) extra = 0;
        least_rebuild_ns_[static_cast<size_t>(kind(i))] = rebuild == infinite ? 0 : rebuild;
        passed_ns_.push_back(passed_ns_.back() + t.forward_ns + extra);
    }
    for (int64_t count = 1; count <= reach_; ++count)
        for (int64_t first = 0; first + count <= layers(); ++first)
            for (int64_t inner = 0; inner <= level(count, depth_ - 1); ++inner) {
                int64_t &bytes = least(first, count, inner);
                if (bytes >= 0) continue;
                poll(cancellation_, searching);
                bytes = infinite;
                arcs_.clear();
                policies_inside(first, first + count, false, arcs_);
                units_inside(first, first + count, inner, arcs_);
                for (const Arc &a : arcs_) {
                    int64_t need = a.floor;
                    if (a.count > 1) need = std::max(need, least(first, a.count, inner - 1));
                    if (a.count < count) need = std::max(need, a.left + least(first + a.count, count - a.count, inner));
                    bytes = std::min(bytes, need);
                }
            }
}

int64_t Space::least_bytes(int64_t first, int64_t count) const {
    return least_bytes_[static_cast<size_t>(level(count, depth_ - 1))][node(first, count)];
}

int64_t Space::least_ns(int64_t first, int64_t count) const {
    const auto last = static_cast<size_t>(first + count - 1);
    return passed_ns_[last] - passed_ns_[static_cast<size_t>(first)] +
           least_rebuild_ns_[static_cast<size_t>(kinds_[last])];
}

void Space::set_limit(int64_t bytes) {
    if (bytes > limit_)
        for (auto &tables : tables_)
            for (CostTable &t : tables) t = {};
    limit_ = std::max(limit_, bytes);
}

void Space::set_step_cap(int64_t most) {
    const auto tables = static_cast<int64_t>(node_count_) * std::max<int64_t>(depth_, 1) + 1;
    const auto fitting = [&](int64_t mib) { return (mib << 20) / static_cast<int64_t>(sizeof(Step)) / tables; };
    const int64_t default_cap =
        std::min(std::clamp<int64_t>(fitting(16), 256, 65536), std::max<int64_t>(fitting(64), 4));
    step_cap_ = static_cast<size_t>(most == 0 ? default_cap : std::min(most, default_cap));
}

const Steps &Space::inside(int64_t first, int64_t count, int64_t inner) {
    if (!table(first, count, inner).made)
        for (int64_t n = 0; n <= level(count, inner); ++n)
            for (int64_t c = 1; c <= count; ++c)
                for (int64_t at = first; n <= level(c, n) && at + c <= first + count; ++at)
                    if (!table(at, c, n).made) make(at, c, n);
    return table(first, count, inner).steps;
}

void Space::make(int64_t first, int64_t count, int64_t inner) {
    static const Steps nothing_left = {{-infinite, 0}};
    CostTable &t = table(first, count, inner);
    poll(cancellation_, searching);
    arcs_.clear();
    policies_inside(first, first + count, false, arcs_);
    units_inside(first, first + count, inner, arcs_);
    merge_.clear();
    for (const Arc &a : arcs_) {
        if (a.floor > limit_) continue;
        Way way{&nothing_left, nullptr, a.left, a.floor, a.ns};
        int64_t error = 0;
        if (a.count < count) {
            const CostTable &rest = table(first + a.count, count - a.count, inner);
            way.rest = &rest.steps;
            error = rest.error;
        }
        if (a.count > 1) {
            const CostTable &unit = table(first, a.count, inner - 1);
            way.inner = &unit.steps;
            error += unit.error;
        }
        if (way.rest->empty() || (way.inner != nullptr && way.inner->empty())) continue;
        t.error = std::max(t.error, error);
        merge_.add(way);
    }
    merge_.run(limit_, steps_);
    t.error += thin(steps_, step_cap_, cancellation_);
    t.steps.assign(steps_.begin(), steps_.end());  // no more room than it takes
    t.made = true;
}

void Space::items_inside(int64_t first, int64_t end, int64_t inner, std::vector<Arc> &out) const {
    out.clear();
    policies_inside(first, end, true, out);
    units_inside(first, end, inner, out);
}

void Space::items_outside(int64_t first, std::vector<Arc> &out) const {
    units(first, out);
    const auto &all = chain_.type(first).policies;
    std::vector<Arc> singles;
    for (size_t i = 0; i < all.size(); ++i)
        if ((all[i].roles & role_alone) != 0) singles.push_back(outside(all[i], i));
    out.insert(out.begin(), singles.begin(), singles.end());
}

}  // namespace mdlm::planner

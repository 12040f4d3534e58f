// SPDX-License-Identifier: Apache-2.0
// What a layer may do in a plan for a budget, alone and in a unit, as the chain's numbers.
#include <algorithm>
#include <set>

#include "base/sizes.hpp"
#include "plan/budget.hpp"

namespace mdlm {
namespace {

planner::PolicyCost numbers_of(const MeasuredPolicy &c, uint32_t roles) {
    planner::PolicyCost p;
    p.saved_bytes = c.saved, p.forward_bytes = c.forward, p.backward_bytes = c.backward, p.extra_ns = c.extra_ns;
    p.roles = roles;
    return p;
}

}  // namespace

BudgetPlanner::ItemType BudgetPlanner::make_type(int64_t item, const ItemTypeKey &key,
                                                 const PolicyEnumerator &enumerator) const {
    ItemType type;
    type.numbers.name = in_.chain[item].name.empty() ? "layer" : in_.chain[item].name;
    type.numbers.forward_ns = enumerator.forward_ns();
    type.backward_ns = enumerator.backward_ns();
    type.boundary = input_bytes(in_, item);
    type.input = key.borrowed ? 0 : type.boundary;
    // What is borrowed costs nothing.
    type.share = key.has_shares && !key.borrowed ? share_bytes(in_, item) : 0;
    type.may_host = key.may_host;
    type.program = key.layer->program.get();
    type.input_id = type.program->input;
    LayoutKey passing;
    passing.y_in_slab = key.next_in_slab;
    type.numbers.unsaved_forward_bytes = enumerator.passing_bytes(passing);
    std::vector<MeasuredPolicy> alone = add_alone(type, enumerator, key);
    // A layer whose input need not be saved (nothing before it is trained, nor all of itself) gains nothing in a unit.
    type.in_units =
        key.in_units && std::all_of(alone.begin(), alone.end(), [](const MeasuredPolicy &c) { return c.saves_input; });
    if (type.in_units) add_in_units(type, enumerator, key, std::move(alone));
    return type;
}

LayoutKey BudgetPlanner::key_alone(const ItemTypeKey &key) const {
    LayoutKey alone;
    alone.x_in_frame = !key.borrowed, alone.y_in_slab = key.next_in_slab, alone.slab_above = on_frame_;
    return alone;
}

// Singles: keep and replay, the same with the input as a share, and with kept tensors on the host.
std::vector<MeasuredPolicy> BudgetPlanner::add_alone(ItemType &type, const PolicyEnumerator &enumerator,
                                                     const ItemTypeKey &key) const {
    const LayoutKey base = key_alone(key);
    std::vector<MeasuredPolicy> found = enumerator.pareto(base, &type.slack_ns);
    const BufferId input = key.layer->program->input;
    for (const MeasuredPolicy &c : found) type.options.push_back({numbers_of(c, planner::role_alone), c.policy});
    for (const MeasuredPolicy &c : found) {
        if (!c.saves_input || type.share == 0) continue;
        LayoutKey shared = base;
        shared.x_in_frame = false, shared.shard_bytes = type.share;
        LayerPolicy policy = c.policy;
        policy[input] = Storage::shard;
        MeasuredPolicy s = enumerator.measure(policy, shared);
        s.extra_ns = add(s.extra_ns, shard_ns(type.share, in_.group_size, table_));
        type.options.push_back({numbers_of(s, planner::role_alone), s.policy, 0, true});
    }
    if (!type.may_host) return found;
    // All, or as many as leave room for those inside of units.
    std::vector<MeasuredPolicy> goes = found;
    const auto room = planner::most_choices - static_cast<int64_t>(type.options.size());
    int64_t all = 0, most = 1;
    for (const MeasuredPolicy &c : found) {
        const int64_t kept = std::count(c.policy.begin(), c.policy.end(), Storage::keep);
        const int64_t offers = kept == 1 ? 1 : kept == 2 ? 3 : kept + 2;
        all += offers, most = std::max(most, offers);
    }
    if (all > room) {
        keep_few(goes, std::max<int64_t>((room - static_cast<int64_t>(found.size()) - 1) / most, 1));
        type.slack_ns = KeepSearch::unknown;
    }
    for (const MeasuredPolicy &c : goes) add_on_host(type, enumerator, base, c);
    return found;
}

// Each kept tensor alone, all of them, and all but the input.
void BudgetPlanner::add_on_host(ItemType &type, const PolicyEnumerator &enumerator, const LayoutKey &base,
                                const MeasuredPolicy &choice) const {
    const auto kept = static_cast<BufferId>(std::count(choice.policy.begin(), choice.policy.end(), Storage::keep));
    std::set<LayerPolicy> seen;
    const auto offer = [&](auto goes) {
        LayerPolicy policy = choice.policy;
        for (size_t b = 0; b < policy.size(); ++b)
            if (policy[b] == Storage::keep && goes(b) && !type.program->always_kept(static_cast<BufferId>(b)))
                policy[b] = Storage::host;
        if (policy == choice.policy || !seen.insert(policy).second) return;
        LayoutKey key = base;
        if (policy[type.input_id] == Storage::host) key.x_in_frame = false, key.x_staged = true;
        MeasuredPolicy c = enumerator.measure(policy, key);
        c.extra_ns = add(c.extra_ns, table_.host_ns(c.host, type.numbers.forward_ns, type.backward_ns));
        const bool one = std::count(policy.begin(), policy.end(), Storage::host) == 1;
        type.options.push_back({numbers_of(c, planner::role_alone), c.policy, c.host, false, one});
    };
    for (size_t b = 0; kept > 1 && b < choice.policy.size(); ++b) offer([&](size_t o) { return o == b; });
    offer([](size_t) { return true; });
    offer([&](size_t o) { return static_cast<BufferId>(o) != type.input_id; });
}

void BudgetPlanner::add_in_units(ItemType &type, const PolicyEnumerator &enumerator, const ItemTypeKey &key,
                                 std::vector<MeasuredPolicy> alone) const {
    const BufferId input = key.layer->program->input;
    // The last layer of a unit is run forward by its backward only, which replays what it reads.
    LayoutKey last;
    last.x_in_frame = last.slab_above = true;
    LayerPolicy nothing = enumerator.input_only();
    nothing[input] = Storage::replay;
    MeasuredPolicy c = enumerator.measure(nothing, last);
    c.forward = c.saved;
    type.options.push_back({numbers_of(c, planner::role_last), nothing});

    // The others stand as if alone where the slab begins on the frame in use, the first of them on its unit's input,
    // which is not its own to reuse.
    if (on_frame_ && !key.next_in_slab) return;  // nothing follows
    LayoutKey inside = key_alone(key);
    const bool as_alone = inside.slab_above && inside.y_in_slab;
    inside.y_in_slab = inside.slab_above = true;
    LayoutKey first = inside;
    first.x_in_frame = false;
    int64_t slack_inside = 0;
    if (!as_alone) alone = enumerator.pareto(inside, &slack_inside);
    type.slack_ns = std::max(type.slack_ns, slack_inside);
    for (size_t i = 0; i < alone.size(); ++i) {
        MeasuredPolicy both = alone[i];
        if (!key.borrowed) {
            const MeasuredPolicy at_first = enumerator.measure(both.policy, first);
            both.forward = std::max(both.forward, add(type.input, at_first.forward));
            both.backward = std::max(both.backward, add(type.input, at_first.backward));
        }
        if (as_alone && both.needs() == alone[i].needs()) type.options[i].numbers.roles |= planner::role_inside;
        else type.options.push_back({numbers_of(both, planner::role_inside), both.policy});
    }
}

}  // namespace mdlm

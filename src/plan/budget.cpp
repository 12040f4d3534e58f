// SPDX-License-Identifier: Apache-2.0
#include "plan/budget.hpp"

#include <algorithm>
#include <map>
#include <set>

#include "base/sizes.hpp"

namespace mdlm {
namespace {

// Longer units gain nothing at depth 1: the inputs inside of a unit would be more than those of the units.
int64_t most_unit_layers(int64_t layers) {
    int64_t most = 8;
    while (most * most * 4 < layers) ++most;
    return most;
}

// Is a share of its input less than the whole?
bool has_shares(const BlockPlanInput &in, int64_t item) {
    const Program &p = in.chain.of(item);
    return in.group_size > 1 && in.chain[item].in_units && p.buffers[p.input].split == 1;
}

// Every item replays everything, from its input or a share of it.
Policies replaying(const BlockPlanInput &in, Storage input) {
    const Chain &chain = in.chain;
    Policies p;
    for (int64_t i = 0; i < chain.items(); ++i) {
        p.items.push_back(replay_all(chain.of(i), has_shares(in, i) ? input : Storage::keep));
        p.units.push_back({i, 1});
    }
    return p;
}

int64_t fixed_bytes(BlockPlanInput in, Storage input) {
    in.policies = replaying(in, input);
    return make_block_plan(std::move(in))->fixed_bytes;
}

}  // namespace

BudgetPlanner::BudgetPlanner(BlockPlanInput in, DeviceTable table, int64_t host_layers, Cancellation *cancellation)
    : in_(std::move(in)), table_(std::move(table)), cancellation_(cancellation), on_frame_(in_.slab_on_frame()),
      layers_(differentiate_items(in_)) {
    const int64_t items = in_.chain.items();
    for (int64_t i = 0; i < items; ++i) {
        shards_ = shards_ || has_shares(in_, i);
        kept_ = add(kept_, in_.chain.of(i).kept_bytes(in_.bound));
    }
    fixed_ = fixed_bytes(in_, Storage::keep);
    if (shards_) fixed_with_shares_ = fixed_bytes(in_, Storage::shard);
    std::map<ItemTypeKey, int32_t> seen;
    for (int64_t i = 0; i < items; ++i) {
        const Item &item = in_.chain[i];
        const bool next_saves = i + 1 < items && layers_[i + 1]->anything();
        const bool may_host = item.by_settings && host_layers-- > 0;
        const ItemTypeKey key{layers_[i].get(),           item.in_units,           has_shares(in_, i),
                              i == 0 && in_.borrow_input, on_frame_ && next_saves, may_host};
        const auto [at, is_new] = seen.emplace(key, static_cast<int32_t>(types_.size()));
        if (is_new) {
            const PolicyEnumerator enumerator(layers_[i], in_.bound, in_.traits, table_, cancellation_);
            passing_ = std::max(passing_, enumerator.passing_bytes({}));
            types_.push_back(make_type(i, key, enumerator));
        }
        type_of_.push_back(at->second);
        slack_ns_ = std::min(slack_ns_ + types_[at->second].slack_ns, KeepSearch::unknown);
    }
    passing_ = add(passing_, in_.call_state_bytes), states_ = mul(in_.in_flight, in_.call_state_bytes);
}

std::vector<const BudgetPlanner::PolicyOption *> BudgetPlanner::options_of(const ItemType &type,
                                                                           const Variant &v) const {
    std::vector<const PolicyOption *> list;
    for (const PolicyOption &o : type.options)
        if ((!o.shard || v.shard) && o.host <= v.staging) list.push_back(&o);
    return list;
}

std::vector<BudgetPlanner::UnitForm> BudgetPlanner::forms_of(const ItemType &type, const Variant &v) const {
    if (!type.in_units) return {};
    // With the input not `staying` a unit's first pass, and each replay, are counted above what the form leaves, as
    // they stand.
    std::vector<UnitForm> forms = {{Storage::keep, {"keep", type.input, 0, false}}};
    if (v.shard && type.share > 0)
        forms.push_back({Storage::shard, {"shard", type.share, shard_ns(type.share, in_.group_size, table_), false}});
    const int64_t host = type.boundary;
    if (type.may_host && v.staging >= host)
        forms.push_back(
            {Storage::host, {"host", 0, table_.host_ns(host, type.numbers.forward_ns, type.backward_ns), false}});
    return forms;
}

std::vector<BudgetPlanner::Variant> BudgetPlanner::variants(bool every_ring) const {
    std::set<int64_t> staging = {0};
    for (const ItemType &t : types_) {
        int64_t tensor = 0, all = 0;
        for (const PolicyOption &o : t.options) {
            if (every_ring) staging.insert(o.host);
            if (o.one_on_host) tensor = std::max(tensor, o.host);
            all = std::max(all, o.host);
        }
        staging.insert({tensor, all, t.may_host ? t.boundary : 0});
    }
    std::vector<Variant> list;
    for (int64_t bytes : staging) {
        // Where shares fit into the slots of whole inputs, allowing them costs nothing.
        if (!shards_ || fixed_with_shares_ != fixed_) list.push_back({false, bytes});
        if (shards_) list.push_back({true, bytes});
    }
    return list;
}

planner::Chain BudgetPlanner::chain(const Variant &v) const {
    planner::Chain c;
    for (const ItemType &t : types_) {
        planner::LayerType numbers = t.numbers;
        for (const PolicyOption *o : options_of(t, v)) numbers.policies.push_back(o->numbers);
        for (const UnitForm &f : forms_of(t, v)) numbers.unit_inputs.push_back(f.numbers);
        c.types.push_back(std::move(numbers));
    }
    c.layers = type_of_;
    c.in_flight = in_.in_flight, c.slab_apart = !on_frame_;
    const int64_t tapes = add(states_, mul(in_.in_flight, kept_));
    c.fixed_bytes = add(add(v.shard ? fixed_with_shares_ : fixed_, tapes), mul(staging_slots, v.staging));
    if (in_.evaluate_in_flight || in_.share_scratch) c.loss_bytes = passing_;
    c.max_unit_depth = 1;
    c.max_unit_layers = most_unit_layers(in_.chain.in_units());
    return c;
}

int64_t BudgetPlanner::floor_bytes() const {
    const bool apart = in_.evaluate_in_flight || in_.share_scratch;
    return add(fixed_, apart ? states_ : std::max(states_, passing_));
}

Policies BudgetPlanner::policies(const Variant &v, const planner::ChainPlan &plan) const {
    Policies out;
    for (size_t at = 0; at < plan.size(); at += 1 + static_cast<size_t>(plan[at].inside)) {
        const planner::PlanItem &item = plan[at];
        out.units.push_back({item.first, item.count});
        const auto policy_of = [&](const planner::PlanItem &single) {
            return options_of(types_[type_of_[single.first]], v)[single.choice]->policy;
        };
        if (item.count == 1) {
            out.items.push_back(policy_of(item));
            continue;
        }
        for (int32_t i = 1; i <= item.inside; ++i) {
            LayerPolicy policy = policy_of(plan[at + static_cast<size_t>(i)]);
            policy[in_.chain.of(item.first + i - 1).input] =
                i == 1 ? forms_of(types_[type_of_[item.first]], v)[item.choice].storage : Storage::replay;
            out.items.push_back(std::move(policy));
        }
    }
    return out;
}

BudgetAnswer BudgetPlanner::solve(int64_t arena_bytes, const Variant &v) const {
    BudgetAnswer a;
    const planner::Chain c = chain(v);
    int64_t budget = arena_bytes, least_ns = 0;
    // Once, unless a layout came out higher than the chain has it, which heights taken from layouts should rule out.
    for (int attempt = 0;; ++attempt) {
        const planner::Result r = planner::solve(c, budget, 0, cancellation_);
        if (attempt == 0) {
            a.minimum_bytes = std::max(r.minimum_budget_bytes, floor_bytes());
            least_ns = std::max<int64_t>(r.extra_ns - r.gap_ns - slack_ns_, 0);
        }
        if (!r.feasible || arena_bytes < floor_bytes() || attempt == 16) return a;
        BlockPlanInput in = in_;
        in.policies = policies(v, r.plan);
        a.policies = in.policies;
        const auto laid_out = make_block_plan(std::move(in));
        a.peak_bytes = laid_out->peak_bytes, a.chain_peak_bytes = std::max(r.peak_bytes, floor_bytes());
        a.extra_ns = r.extra_ns, a.gap_ns = r.extra_ns - least_ns;
        a.optimal = a.gap_ns == 0;
        a.feasible = a.peak_bytes <= arena_bytes;
        if (a.feasible) return a;
        budget -= a.peak_bytes - arena_bytes;
    }
}

BudgetAnswer BudgetPlanner::solve(int64_t arena_bytes) const {
    BudgetAnswer best;
    int64_t least_ns = INT64_MAX, minimum = INT64_MAX;
    bool all_optimal = true;
    for (const Variant &v : variants(true)) {
        BudgetAnswer a = solve(arena_bytes, v);
        minimum = std::min(minimum, a.minimum_bytes);
        if (!a.feasible) continue;
        least_ns = std::min(least_ns, a.extra_ns - a.gap_ns);
        all_optimal = all_optimal && a.optimal;
        if (!best.feasible || a.extra_ns < best.extra_ns ||
            (a.extra_ns == best.extra_ns && a.peak_bytes < best.peak_bytes))
            best = std::move(a);
    }
    best.minimum_bytes = minimum;
    if (best.feasible) best.gap_ns = best.extra_ns - least_ns, best.optimal = all_optimal || best.gap_ns == 0;
    return best;
}

BudgetFrontier BudgetPlanner::frontier() const {
    std::vector<BudgetPoint> points;
    BudgetFrontier found;
    for (const Variant &v : variants(on_frame_)) {
        const planner::Frontier of_variant = planner::frontier(chain(v), 0, false, cancellation_);
        found.gap_ns = std::max(found.gap_ns, of_variant.gap_ns);
        for (const planner::FrontierPoint &p : of_variant.points)
            points.push_back({std::max(p.peak_bytes, floor_bytes()), p.extra_ns});
    }
    std::sort(points.begin(), points.end(), [](const BudgetPoint &a, const BudgetPoint &b) {
        return a.peak_bytes != b.peak_bytes ? a.peak_bytes < b.peak_bytes : a.extra_ns < b.extra_ns;
    });
    for (const BudgetPoint &p : points)
        if (found.points.empty() || p.extra_ns < found.points.back().extra_ns) found.points.push_back(p);
    if (!found.points.empty())
        found.gap_ns = std::min(add(found.gap_ns, slack_ns_), std::max(found.gap_ns, found.points.front().extra_ns));
    return found;
}

}  // namespace mdlm

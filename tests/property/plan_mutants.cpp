// SPDX-License-Identifier: Apache-2.0
// Mutants of plans: the entries, schedules and layouts of a reserved block, changed before it runs.
#include <algorithm>

#include "mutants.hpp"

namespace property {
namespace {

using mdlm::BlockPlan;
using mdlm::Home;
using mdlm::Place;
using mdlm::PlanEntry;
using mdlm::Schedule;
using Kind = Place::Kind;

class OfPlan final : public Mutant {
public:
    using Edit = int64_t (*)(BlockPlan &);  // returns how many places it changed
    OfPlan(std::string name, Edit edit) : Mutant(std::move(name)), edit_(edit) {}
    void plan(BlockPlan &p) override { reached += edit_(p); }

private:
    Edit edit_;
};

bool same(const Place &a, const Place &b) { return a.kind == b.kind && a.offset == b.offset; }

// Every layer of a unit replayed from the unit's input instead of its own.
int64_t units_input_for_all(BlockPlan &p) {
    int64_t changed = 0;
    for (const mdlm::Unit &u : p.input.policies.units) {
        const auto of_item = [&](int64_t item) {
            return std::find_if(p.backward.begin(), p.backward.end(), [&](const PlanEntry &e) {
                return e.item == item && (e.kind == PlanEntry::Kind::forward || e.kind == PlanEntry::Kind::backward);
            });
        };
        const auto first = of_item(u.first);
        if (u.count == 1 || first == p.backward.end()) continue;
        const Place x = first->x;
        for (PlanEntry &e : p.backward)
            if (e.item > u.first && e.item < u.first + u.count && !same(e.x, x)) e.x = x, ++changed;
    }
    return changed;
}

// A scratch tensor placed over another one that is still to be read.
int64_t reused_too_early(BlockPlan &p) {
    int64_t changed = 0;
    for (auto &[key, layout] : p.layouts) {
        const Schedule &s = *key.first;
        const auto count = static_cast<int32_t>(s.values.size());
        std::vector<int32_t> birth(s.values.size(), -1), death(s.values.size(), -1);
        for (int32_t i = 0; i < static_cast<int32_t>(s.backward.size()); ++i)
            for (const auto *list : {&s.backward[i].in, &s.backward[i].out})
                for (int32_t v : *list) {
                    const int32_t r = s.root(v);
                    if (birth[r] < 0) birth[r] = i;
                    death[r] = i;
                }
        const auto scratch = [&](int32_t v) {
            return birth[v] >= 0 && s.root(v) == v && s.values[v].home == Home::scratch;
        };
        const auto clash = [&](int32_t a, int32_t b) {
            return a != b && scratch(a) && scratch(b) && birth[a] < birth[b] && birth[b] < death[a] &&
                   s.values[b].bytes <= s.values[a].bytes;
        };
        for (int32_t a = 0, b = count; a < count && b == count; ++a)
            for (b = 0; b < count; ++b) {
                if (!clash(a, b)) continue;
                for (int32_t v = 0; v < count; ++v)
                    if (s.root(v) == b) layout->places[v] = layout->places[a];
                ++changed;
                break;
            }
    }
    return changed;
}

int64_t replay_left_out(BlockPlan &p) {
    int64_t changed = 0;
    for (auto &[key, s] : p.schedules) {
        const auto step =
            std::find_if(s->backward.begin(), s->backward.end(), [](const mdlm::ScheduledOp &t) { return t.replay; });
        if (step == s->backward.end()) continue;
        s->backward.erase(step);
        ++changed;
    }
    return changed;
}

// The input stays with the caller, who may reuse it, although the plan promised a copy.
int64_t input_not_copied(BlockPlan &p) {
    const auto copy = std::find_if(p.forward.begin(), p.forward.end(),
                                   [](const PlanEntry &e) { return e.kind == PlanEntry::Kind::copy_input; });
    if (copy == p.forward.end() || copy->x.kind != Kind::stack) return 0;
    const Place x = copy->x;
    p.forward.erase(copy);
    for (auto *list : {&p.forward, &p.backward})
        for (PlanEntry &e : *list)
            if (e.item == 0 && same(e.x, x)) e.x = {Kind::caller, 0};
    return 1;
}

// Every layer gets the gradient of the block's output instead of that of its own.
int64_t blocks_gradient_for_all(BlockPlan &p) {
    int64_t changed = 0;
    for (PlanEntry &e : p.backward)
        if (e.kind == PlanEntry::Kind::backward && e.dy.kind == Kind::fixed) e.dy = {Kind::caller, 0}, ++changed;
    return changed;
}

int64_t tapes_share_a_stack(BlockPlan &p) {
    if (p.input.in_flight == 1 || p.stack_bytes == 0) return 0;
    p.stack_bytes = 0;
    return 1;
}

int64_t tapes_share_host_storage(BlockPlan &p) {
    if (p.input.in_flight == 1 || p.host_bytes == 0) return 0;
    p.host_bytes = 0;
    return 1;
}

// One staging slot where two are needed, for a copy ahead comes before the last use of the one before.
int64_t one_staging_slot(BlockPlan &p) {
    int64_t lowest = -1, changed = 0;
    for (const PlanEntry &e : p.backward)
        if (e.staging.kind == Kind::fixed) lowest = lowest < 0 ? e.staging.offset : std::min(lowest, e.staging.offset);
    for (auto *list : {&p.forward, &p.backward})
        for (PlanEntry &e : *list) {
            if (e.staging.kind != Kind::fixed || e.staging.offset == lowest) continue;
            if (same(e.x, e.staging)) e.x.offset = lowest;
            e.staging.offset = lowest;
            ++changed;
        }
    return changed;
}

// Layers' frames overlap by one granule.
int64_t frames_overlap(BlockPlan &p) {
    int64_t changed = 0;
    for (auto *list : {&p.forward, &p.backward})
        for (PlanEntry &e : *list)
            if (e.frame.kind == Kind::stack && e.frame.offset > 0) e.frame.offset -= 256, ++changed;
    return changed;
}

// An evaluation between a forward and its backward works where the tape's tensors are.
int64_t evaluation_over_saved(BlockPlan &p) {
    const auto &in = p.input;
    if (in.in_flight > 1 || in.share_scratch || !in.evaluate_in_flight || p.stack_bytes == 0) return 0;
    for (PlanEntry &e : p.evaluate) e.slab.offset = -p.stack_bytes;
    return 1;
}

}  // namespace

std::vector<std::unique_ptr<Mutant>> plan_mutants() {
    std::vector<std::unique_ptr<Mutant>> all;
    const auto add = [&](const char *name, OfPlan::Edit edit) { all.push_back(std::make_unique<OfPlan>(name, edit)); };
    add("every layer of a unit replayed from the unit's input", units_input_for_all);
    add("a buffer reused too early", reused_too_early);
    add("a replay left out", replay_left_out);
    add("the input not copied", input_not_copied);
    add("every layer given the block's output gradient", blocks_gradient_for_all);
    add("tapes share one stack", tapes_share_a_stack);
    add("tapes share host storage", tapes_share_host_storage);
    add("a staging slot used again too early", one_staging_slot);
    add("frames of layers overlap", frames_overlap);
    add("an evaluation writes over saved tensors", evaluation_over_saved);
    return all;
}

}  // namespace property

// SPDX-License-Identifier: Apache-2.0
// The entries of a block plan in order, and where each finds its input, output, frame and scratch.
#include <algorithm>

#include "base/sizes.hpp"
#include "plan/unit_plan.hpp"

namespace mdlm {
namespace {

using PK = Place::Kind;
using EK = PlanEntry::Kind;

bool reads(const ScheduledOp &s, int32_t v) { return std::count(s.in.begin(), s.in.end(), v) > 0; }
bool writes(const ScheduledOp &s, int32_t v) { return std::count(s.out.begin(), s.out.end(), v) > 0; }

// May `to` stand where `from` stands, because it is assigned only after the last reader of `from`?
bool may_follow(const std::vector<ScheduledOp> &ops, int32_t from, int32_t to) {
    bool assigned = false;
    for (const ScheduledOp &s : ops) {
        assigned = assigned || writes(s, to);
        if (assigned && reads(s, from)) return false;
    }
    return true;
}

class Composer {
public:
    Composer(BlockPlan &p, UnitPlans units)
        : p_(p), in_(p.input), units_(std::move(units.units)), on_host_(units.on_host),
          staging_bytes_(units.staging_bytes) {}

    void compose() {
        for (size_t i = 0; i < units_.size(); ++i) forward(i);
        for (size_t i = units_.size(); i-- > 0;) backward(i);
        evaluate();
        place_slots();
    }

private:
    int64_t items() const { return in_.chain.items(); }
    bool last(int64_t item) const { return item + 1 == items(); }
    const Schedule *passing(int64_t item) { return p_.schedule(item, {}, false); }

    PlanEntry entry(EK kind, int64_t item, const Schedule *s, const Layout *l) const {
        PlanEntry e;
        e.kind = kind, e.item = item, e.schedule = s, e.layout = l;
        return e;
    }
    // With the unit's frame, and its staging where something is on the host.
    PlanEntry unit_entry(EK kind, const UnitPlan &u, const ItemPlan &i) const {
        PlanEntry e = entry(kind, i.item, i.pass, i.layout);
        e.frame = {PK::stack, u.base};
        e.kept = {PK::stack, i.kept};
        e.slab = {PK::slab, u.slab};
        e.host = u.host;
        if (u.ordinal >= 0) e.staging = {PK::staging, u.ordinal % staging_slots};
        return e;
    }
    // Of the unit's input, and of what else is staged.
    PlanEntry transfer(EK kind, const UnitPlan &u) const {
        PlanEntry e = unit_entry(kind, u, u.items.front());
        e.x = u.x;
        return e;
    }

    // Where the output goes when nothing keeps it: over the input's slot if the ops allow, else into the other one.
    Place slot_after(PK kind, const Place &from, const std::vector<ScheduledOp> &ops, int32_t a, int32_t b) const {
        if (from.kind != kind) return {kind, 0};
        return {kind, may_follow(ops, a, b) ? from.offset : 1 - from.offset};
    }

    void forward(size_t index) {
        UnitPlan &u = units_[index];
        if (u.unit.first == 0 && u.x.kind != PK::caller) p_.forward.push_back(transfer(EK::copy_input, u));
        // The output may take its slot.
        if (u.saves && u.storage == Storage::shard) p_.forward.push_back(transfer(EK::shard_input, u));
        Place x = u.x;
        for (const ItemPlan &i : u.items) {
            PlanEntry e = unit_entry(EK::forward, u, i);
            e.x = x;
            const bool leaves = &i == &u.items.back();
            if (last(i.item)) e.y = {PK::caller, 0};
            else if (leaves && units_[index + 1].x.kind != PK::x_slot) e.y = units_[index + 1].x;
            else e.y = slot_after(PK::x_slot, x, e.schedule->forward, e.schedule->x, e.schedule->y);
            p_.forward.push_back(e);
            x = e.y;
        }
        if (index + 1 < units_.size() && units_[index + 1].x.kind == PK::x_slot) units_[index + 1].x = x;
        if (u.host_bytes > 0) p_.forward.push_back(transfer(EK::to_host, u));
    }

    void push_backward(PlanEntry e) {
        if (e.schedule->backward.empty()) return;
        e.kind = EK::backward;
        e.dy = last(e.item) ? Place{PK::caller, 0} : dx_;
        if (e.schedule->dx >= 0)
            e.dx = e.item == 0 ? Place{PK::caller, 0}
                               : slot_after(PK::dx_slot, e.dy, e.schedule->backward, e.schedule->dy, e.schedule->dx);
        p_.backward.push_back(e);
        dx_ = e.dx;
    }

    void backward(size_t index) {
        const UnitPlan &u = units_[index];
        if (u.ordinal >= 0) {
            if (u.ordinal == on_host_ - 1) p_.backward.push_back(transfer(EK::from_host, u));
            for (size_t j = index; j-- > 0;)  // one ahead of need
                if (units_[j].ordinal >= 0) {
                    p_.backward.push_back(transfer(EK::from_host, units_[j]));
                    break;
                }
        }
        Place x = u.x;
        if (u.saves && u.storage == Storage::shard) {
            PlanEntry e = transfer(EK::gather_input, u);
            x = e.x = {PK::x_slot, 0};
            p_.backward.push_back(e);
        }
        std::vector<PlanEntry> entries;
        int64_t at = u.slab;
        for (const ItemPlan &i : u.items) {
            PlanEntry e = unit_entry(EK::forward, u, i);
            e.x = x;
            if (i.back != i.pass) stand_inside(e, u, i, at);
            if (i.again) p_.backward.push_back(e);
            entries.push_back(e);
        }
        for (size_t i = entries.size(); i-- > 0;) {
            entries[i].replay = false;
            entries[i].y = {};
            push_backward(entries[i]);
        }
    }

    // In an inner frame, which stands above the unit's and those of the items before, ready for the item's backward.
    void stand_inside(PlanEntry &e, const UnitPlan &u, const ItemPlan &i, int64_t &at) {
        LayoutKey key;
        key.x_in_frame = &i != &u.items.front();
        key.x_staged = !key.x_in_frame && e.x.kind == PK::staging;
        key.y_in_slab = &i != &u.items.back();
        key.slab_above = true;
        e.schedule = i.back, e.layout = p_.layout(i.back, key);
        e.frame = {PK::slab, at};
        if (key.x_in_frame) e.x = e.frame;
        at = add(at, e.layout->frame_bytes);
        e.slab = e.y = {PK::slab, at};
        e.replay = true;
    }

    void evaluate() {
        // Scratch is above what all tapes keep, or, when none is in flight, where their stacks are (unless those are
        // apart from it).
        const bool above = in_.evaluate_in_flight || in_.share_scratch;
        p_.evaluation_state = {PK::slab, above ? 0 : -mul(in_.in_flight, p_.stack_bytes)};
        Place x{PK::caller, 0};
        for (int64_t i = 0; i < items(); ++i) {
            PlanEntry e = entry(EK::forward, i, passing(i), nullptr);
            e.layout = p_.layout(e.schedule, {});
            e.slab = {PK::slab, add(p_.evaluation_state.offset, in_.call_state_bytes)};
            e.x = x;
            e.y = last(i) ? Place{PK::caller, 0}
                          : slot_after(PK::x_slot, x, e.schedule->forward, e.schedule->x, e.schedule->y);
            x = e.y;
            p_.evaluate.push_back(e);
        }
    }

    // Turns slots into offsets.
    void place_slots() {
        const std::initializer_list<std::vector<PlanEntry> *> lists = {&p_.forward, &p_.backward, &p_.evaluate};
        int64_t x_slots = 0, dx_slots = 0;
        for (auto *list : lists)
            for (const PlanEntry &e : *list)
                for (const Place *place : {&e.x, &e.y, &e.dy, &e.dx}) {
                    if (place->kind == PK::x_slot) x_slots = std::max(x_slots, place->offset + 1);
                    if (place->kind == PK::dx_slot) dx_slots = std::max(dx_slots, place->offset + 1);
                }
        int64_t slot = 0;  // holds any boundary
        for (int64_t i = 0; i < items(); ++i) slot = std::max(slot, input_bytes(in_, i));
        for (const UnitPlan &u : units_)
            if (u.storage == Storage::shard) slot = std::max(slot, mul(share_bytes(in_, u.unit.first), in_.group_size));
        const int64_t dx_begin = mul(x_slots, slot), staging_begin = add(dx_begin, mul(dx_slots, slot));
        p_.fixed_bytes = add(staging_begin, mul(std::min(on_host_, staging_slots), staging_bytes_));
        for (auto *list : lists)
            for (PlanEntry &e : *list)
                for (Place *place : {&e.frame, &e.slab, &e.x, &e.y, &e.dy, &e.dx, &e.staging}) {
                    if (place->kind == PK::x_slot) *place = {PK::fixed, place->offset * slot};
                    else if (place->kind == PK::dx_slot) *place = {PK::fixed, dx_begin + place->offset * slot};
                    else if (place->kind == PK::staging) {
                        e.slots |= uint32_t{1} << place->offset;
                        *place = {PK::fixed, staging_begin + place->offset * staging_bytes_};
                    }
                }
        const int64_t stacks = mul(in_.in_flight, p_.stack_bytes);
        p_.slab_origin = p_.peak_bytes = add(p_.fixed_bytes, stacks);
    }

    BlockPlan &p_;
    const BlockPlanInput &in_;
    std::vector<UnitPlan> units_;
    int64_t on_host_, staging_bytes_;  // as in UnitPlans
    Place dx_;
};

}  // namespace

void lay_out_entries(BlockPlan &plan, UnitPlans units) { Composer(plan, std::move(units)).compose(); }

}  // namespace mdlm

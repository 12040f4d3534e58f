// SPDX-License-Identifier: Apache-2.0
#include "plan/block_plan.hpp"

#include <algorithm>

#include "base/sizes.hpp"

namespace mdlm {
namespace {

using PK = Place::Kind;
using EK = Entry::Kind;

bool reads(const Step &s, int32_t v) { return std::count(s.in.begin(), s.in.end(), v) > 0; }
bool writes(const Step &s, int32_t v) { return std::count(s.out.begin(), s.out.end(), v) > 0; }

// May `to` stand where `from` stands, because it is assigned only after the last reader of `from`?
bool may_follow(const std::vector<Step> &steps, int32_t from, int32_t to) {
    bool assigned = false;
    for (const Step &s : steps) {
        assigned = assigned || writes(s, to);
        if (assigned && reads(s, from)) return false;
    }
    return true;
}

// What a unit keeps of its input, and where its frame is.
struct UnitPlan {
    Unit unit;
    bool saves = false;  // keeps its input in some form
    Storage storage = Storage::keep;
    Place x;                      // its input, in forward
    int64_t base = 0, frame = 0;  // in the stack
    int64_t ordinal = -1;         // among units with something on the host
    int64_t host = 0, host_bytes = 0;
    const Schedule *single = nullptr;  // of a unit of one
    const Layout *layout = nullptr;
};

class Composer {
public:
    explicit Composer(BlockPlan &p) : p_(p), in_(p.input), one_(in_.in_flight == 1 && !in_.share_scratch) {}

    void compose() {
        check_boundaries();
        p_.layers = differentiate_items(in_);
        p_.wants_dx = in_.input_requires_grad;
        for (const Unit &u : in_.policies.units) units_.push_back(plan_unit(u));
        lay_stack();
        for (size_t i = 0; i < units_.size(); ++i) forward(i);
        for (size_t i = units_.size(); i-- > 0;) backward(i);
        evaluate();
        finish();
    }

private:
    int64_t items() const { return in_.programs.items(); }

    // What a layer makes is what the next one takes.
    void check_boundaries() const {
        for (int64_t i = 1; i < items(); ++i) {
            const Program &from = in_.programs.of(i - 1), &to = in_.programs.of(i);
            const int64_t made = from.buffers[from.output].bytes(in_.bound),
                          taken = to.buffers[to.input].bytes(in_.bound);
            if (made != taken)
                fail(MDLM_ERROR_INTERNAL,
                     "layer %lld makes an output of %lld bytes: expected %lld, the input of the next", (long long)i - 1,
                     (long long)made, (long long)taken);
            if (&from == &to && i > 1) i = in_.programs.num_layers - 1;  // the same two programs again
        }
    }

    bool last(int64_t item) const { return item + 1 == items(); }

    const Schedule *schedule(int64_t item, const LayerPolicy &policy, bool save) {
        auto &s = p_.schedules[{p_.layers[item].get(), save ? policy : LayerPolicy{}, save}];
        if (s == nullptr)
            s = std::make_unique<Schedule>(make_schedule(p_.layers[item], policy, save, in_.bound, in_.traits));
        return s.get();
    }
    const Layout *layout(const Schedule *s, const LayoutKey &key) {
        auto &l = p_.layouts[{s, key}];
        if (l == nullptr) l = std::make_unique<Layout>(make_layout(*s, key));
        return l.get();
    }
    const Schedule *passing(int64_t item) { return schedule(item, {}, false); }

    int64_t input_bytes(int64_t item) const { return mdlm::input_bytes(in_, item); }
    int64_t share_bytes(int64_t item) const { return mdlm::share_bytes(in_, item); }

    UnitPlan plan_unit(const Unit &unit) {
        UnitPlan u;
        u.unit = unit;
        const Program &program = in_.programs.of(unit.first);
        u.storage = in_.policies.items[unit.first][program.input];
        if (unit.count == 1) {
            u.single = schedule(unit.first, in_.policies.items[unit.first], true);
            u.saves = u.single->saves_input;
        } else {
            for (int64_t i = unit.first; i < unit.first + unit.count; ++i)
                u.saves = u.saves || p_.layers[i]->anything();
        }
        const bool keeps = u.saves && u.storage == Storage::keep;
        const bool staged = u.saves && u.storage == Storage::host;
        if (staged) u.x = {PK::staging, 0};
        else if (unit.first == 0 && (!keeps || in_.borrow_input)) u.x = {PK::caller, 0};
        else u.x = {keeps ? PK::stack : PK::x_slot, 0};
        return u;
    }

    LayoutKey key_of(const UnitPlan &u, bool next_in_slab) const {
        LayoutKey key;
        key.x_in_frame = u.x.kind == PK::stack;
        key.x_staged = u.x.kind == PK::staging;
        key.y_in_slab = next_in_slab;
        key.slab_above = one_;
        key.shard_bytes = u.saves && u.storage == Storage::shard ? share_bytes(u.unit.first) : 0;
        return key;
    }

    bool next_in_slab(size_t i) const { return one_ && i + 1 < units_.size() && units_[i + 1].x.kind == PK::stack; }

    void lay_stack() {
        int64_t top = 0, host = 0, ordinal = 0;
        for (size_t i = 0; i < units_.size(); ++i) {
            UnitPlan &u = units_[i];
            const LayoutKey key = key_of(u, next_in_slab(i));
            u.base = top;
            if (u.single != nullptr) {
                u.layout = layout(u.single, key);
                u.frame = u.layout->frame_bytes;
                u.host_bytes = u.layout->staged_bytes;
            } else {
                u.frame = add(key.shard_bytes, key.x_in_frame ? input_bytes(u.unit.first) : 0);
                u.host_bytes = key.x_staged ? input_bytes(u.unit.first) : 0;
            }
            if (u.x.kind == PK::stack) u.x.offset = u.base;
            if (u.host_bytes > 0) {
                u.ordinal = ordinal++;
                u.host = host;
                host = add(host, u.host_bytes);
                staging_bytes_ = std::max(staging_bytes_, u.host_bytes);
                if (u.x.kind == PK::staging) u.x.offset = u.ordinal % 2;
            }
            top = add(top, u.frame);
        }
        hosts_ = ordinal;
        p_.stack_bytes = top;
        p_.host_bytes = host;
    }

    Place slab_above(const UnitPlan &u) const { return {PK::slab, one_ ? u.base + u.frame : 0}; }

    Entry entry(EK kind, int64_t item, const Schedule *s, const Layout *l) const {
        Entry e;
        e.kind = kind, e.item = item, e.schedule = s, e.layout = l;
        return e;
    }
    // The entry's own frame and staging, for a unit of one or the transfers of any unit.
    Entry unit_entry(EK kind, const UnitPlan &u) const {
        Entry e = entry(kind, u.unit.first, u.single, u.layout);
        e.frame = {PK::stack, u.base};
        e.slab = slab_above(u);
        e.x = u.x;
        e.host = u.host;
        if (u.ordinal >= 0) e.staging = {PK::staging, u.ordinal % 2};
        return e;
    }
    // Of the unit's input, and what else is staged. A unit of several layers has its input only; a schedule that never
    // runs says so.
    Entry transfer(EK kind, const UnitPlan &u) {
        Entry e = unit_entry(kind, u);
        if (e.schedule == nullptr) {
            e.schedule = passing(u.unit.first);
            LayoutKey key;
            key.x_staged = u.x.kind == PK::staging;
            e.layout = layout(e.schedule, key);
        }
        return e;
    }

    // Where the output goes when nothing keeps it: over the input's slot if the steps allow, else into the other one.
    Place slot_after(PK kind, const Place &from, const std::vector<Step> &steps, int32_t a, int32_t b) const {
        if (from.kind != kind) return {kind, 0};
        return {kind, may_follow(steps, a, b) ? from.offset : 1 - from.offset};
    }

    void forward(size_t index) {
        UnitPlan &u = units_[index];
        const int64_t end = u.unit.first + u.unit.count;
        if (u.unit.first == 0 && u.x.kind != PK::caller) p_.forward.push_back(transfer(EK::copy_input, u));
        // The output may take its slot.
        if (u.saves && u.storage == Storage::shard) p_.forward.push_back(transfer(EK::shard_input, u));
        Place x = u.x;
        for (int64_t i = u.unit.first; i < end; ++i) {
            Entry e = unit_entry(EK::forward, u);
            e.item = i;
            if (u.single == nullptr) {
                e.schedule = passing(i);
                LayoutKey key;
                key.y_in_slab = i + 1 == end && next_in_slab(index);
                e.layout = layout(e.schedule, key);
            }
            e.x = x;
            const bool leaves = i + 1 == end;
            if (last(i)) e.y = {PK::caller, 0};
            else if (leaves && units_[index + 1].x.kind != PK::x_slot) e.y = units_[index + 1].x;
            else e.y = slot_after(PK::x_slot, x, e.schedule->forward, e.schedule->x, e.schedule->y);
            p_.forward.push_back(e);
            x = e.y;
        }
        if (index + 1 < units_.size() && units_[index + 1].x.kind == PK::x_slot) units_[index + 1].x = x;
        if (u.host_bytes > 0) p_.forward.push_back(transfer(EK::to_host, u));
    }

    void push_backward(Entry e) {
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
            if (u.ordinal == hosts_ - 1) p_.backward.push_back(transfer(EK::from_host, u));
            for (size_t j = index; j-- > 0;)  // one ahead of need
                if (units_[j].ordinal >= 0) {
                    p_.backward.push_back(transfer(EK::from_host, units_[j]));
                    break;
                }
        }
        Place x = u.x;
        if (u.saves && u.storage == Storage::shard) {
            Entry e = transfer(EK::gather_input, u);
            x = e.x = {PK::x_slot, 0};
            p_.backward.push_back(e);
        }
        if (u.single != nullptr) {
            Entry e = unit_entry(EK::backward, u);
            e.x = x;
            push_backward(e);
        } else if (u.saves) {
            backward_of_several(u, x);
        }
    }

    // The unit's layers run forward again into inner frames above its own, each ready for its backward; the last one's
    // forward is part of its backward, which replays only what is read.
    void backward_of_several(const UnitPlan &u, Place x) {
        const int64_t final = u.unit.first + u.unit.count - 1;
        int64_t at = slab_above(u).offset;
        std::vector<Entry> entries;
        for (int64_t i = u.unit.first; i <= final; ++i) {
            LayerPolicy policy = in_.policies.items[i];
            if (i == final) policy.assign(policy.size(), Storage::replay);
            Entry e = entry(EK::forward, i, schedule(i, policy, true), nullptr);
            LayoutKey key;
            key.x_in_frame = i > u.unit.first;
            key.x_staged = !key.x_in_frame && x.kind == PK::staging;
            key.y_in_slab = i < final;
            key.slab_above = true;
            e.layout = layout(e.schedule, key);
            e.replay = true;
            if (u.ordinal >= 0) e.staging = {PK::staging, u.ordinal % 2};
            e.frame = {PK::slab, at};
            e.x = key.x_in_frame ? e.frame : x;
            at = add(at, e.layout->frame_bytes);
            e.slab = {PK::slab, at};
            e.y = e.slab;
            if (i < final) p_.backward.push_back(e);
            entries.push_back(e);
        }
        for (size_t i = entries.size(); i-- > 0;) {
            entries[i].replay = false;
            entries[i].y = {};
            push_backward(entries[i]);
        }
    }

    void evaluate() {
        // Scratch is above what all tapes keep, or, when none is in flight, where their stacks are (unless those are
        // apart from it).
        const int64_t above = one_ ? p_.stack_bytes : 0;
        const int64_t below = one_ || in_.share_scratch ? 0 : -mul(in_.in_flight, p_.stack_bytes);
        Place x{PK::caller, 0};
        for (int64_t i = 0; i < items(); ++i) {
            Entry e = entry(EK::forward, i, passing(i), nullptr);
            e.layout = layout(e.schedule, {});
            e.slab = {PK::slab, in_.evaluate_in_flight ? above : below};
            e.x = x;
            e.y = last(i) ? Place{PK::caller, 0}
                          : slot_after(PK::x_slot, x, e.schedule->forward, e.schedule->x, e.schedule->y);
            x = e.y;
            p_.evaluate.push_back(e);
        }
    }

    // Turns slots into offsets, and takes the measures.
    void finish() {
        const std::initializer_list<std::vector<Entry> *> lists = {&p_.forward, &p_.backward, &p_.evaluate};
        int64_t x_slots = 0, dx_slots = 0;
        for (auto *list : lists)
            for (const Entry &e : *list)
                for (const Place *place : {&e.x, &e.y, &e.dy, &e.dx}) {
                    if (place->kind == PK::x_slot) x_slots = std::max(x_slots, place->offset + 1);
                    if (place->kind == PK::dx_slot) dx_slots = std::max(dx_slots, place->offset + 1);
                }
        int64_t slot = 0;  // holds any boundary
        for (int64_t i = 0; i < items(); ++i) slot = std::max(slot, input_bytes(i));
        for (const UnitPlan &u : units_)
            if (u.storage == Storage::shard) slot = std::max(slot, mul(share_bytes(u.unit.first), in_.group_size));
        const int64_t dx_begin = mul(x_slots, slot), staging_begin = add(dx_begin, mul(dx_slots, slot));
        p_.fixed_bytes = add(staging_begin, mul(std::min<int64_t>(hosts_, 2), staging_bytes_));
        for (auto *list : lists)
            for (Entry &e : *list)
                for (Place *place : {&e.frame, &e.slab, &e.x, &e.y, &e.dy, &e.dx, &e.staging}) {
                    if (place->kind == PK::x_slot) *place = {PK::fixed, place->offset * slot};
                    else if (place->kind == PK::dx_slot) *place = {PK::fixed, dx_begin + place->offset * slot};
                    else if (place->kind == PK::staging)
                        *place = {PK::fixed, staging_begin + place->offset * staging_bytes_};
                }
        const int64_t stacks = mul(in_.in_flight, p_.stack_bytes);
        p_.slab_origin = one_ ? p_.fixed_bytes : add(p_.fixed_bytes, stacks);
        p_.peak_bytes = add(p_.fixed_bytes, stacks);
        measure();
    }

    void measure() {
        p_.items.resize(items());
        for (const UnitPlan &u : units_)
            for (int64_t i = u.unit.first; i < u.unit.first + u.unit.count; ++i) {
                p_.items[i].base = u.base;
                top_of_frame_.push_back(u.base + u.frame);
                if (i > u.unit.first) continue;
                p_.items[i].saved_bytes = u.frame;
                p_.items[i].host_bytes = u.host_bytes;
            }
        for (const auto *list : {&p_.forward, &p_.backward, &p_.evaluate})
            for (const Entry &e : *list) {
                if (e.kind == EK::gather_input)
                    moved_bytes_ = add(moved_bytes_, mul(share_bytes(e.item), in_.group_size));
                if (e.kind != EK::forward && e.kind != EK::backward) continue;
                const bool is_backward = e.kind == EK::backward;
                const int64_t height = is_backward ? e.layout->backward_slab : e.layout->forward_slab;
                const int64_t top = add(e.slab.offset, height);
                const bool inside = list == &p_.backward && e.frame.kind == PK::slab;
                const int64_t below = !inside ? e.slab.offset
                                      : one_  ? top_of_frame_[e.item]
                                              : 0;  // where the frames of what is saved end
                p_.scratch_bytes = std::max(p_.scratch_bytes, top - below);
                p_.peak_bytes = std::max(p_.peak_bytes, add(p_.slab_origin, top));
                if (list != &p_.evaluate) measure(e, is_backward, top);
            }
    }

    void measure(const Entry &e, bool is_backward, int64_t top) {
        ItemPlan &item = p_.items[e.item];
        // Frames of a tape's own are below the slab or apart from it; inner frames are below the slab's offset.
        const int64_t below = one_ ? item.base : 0;
        const int64_t frame = !one_ && e.frame.kind == PK::stack ? e.layout->frame_bytes : 0;
        const int64_t used = top - below + frame;
        int64_t &most = is_backward || e.replay ? item.backward_bytes : item.forward_bytes;
        const int64_t alive =
            (is_backward ? e.layout->backward_alive : e.layout->forward_alive) + used - frame_and_slab(e, is_backward);
        if (used > std::max(item.forward_bytes, item.backward_bytes)) item.most_alive_bytes = alive;
        most = std::max(most, used);
        const auto &steps = is_backward ? e.schedule->backward : e.schedule->forward;
        for (const Step &s : steps) {
            const Cost cost = e.schedule->op(s).cost(in_.bound);
            const bool replay = s.replay || e.replay;
            int64_t &flops = replay ? item.replayed_flops : is_backward ? item.backward_flops : item.forward_flops;
            flops = add(flops, cost.flops);
            item.replayed_ops += replay;
            // What a tape counts while it runs can then be no more.
            flops_ = add(flops_, cost.flops), moved_bytes_ = add(moved_bytes_, cost.collective);
        }
    }
    static int64_t frame_and_slab(const Entry &e, bool is_backward) {
        return e.layout->frame_bytes + (is_backward ? e.layout->backward_slab : e.layout->forward_slab);
    }

    BlockPlan &p_;
    const BlockPlanInput &in_;
    bool one_;  // one tape in flight: the slab stands right above the frame in use
    std::vector<UnitPlan> units_;
    int64_t staging_bytes_ = 0, hosts_ = 0;
    std::vector<int64_t> top_of_frame_;    // by item: of its unit's, in the stack
    int64_t flops_ = 0, moved_bytes_ = 0;  // of a forward and its backward, all items
    Place dx_;
};

}  // namespace

int64_t input_bytes(const BlockPlanInput &in, int64_t item) {
    const Program &program = in.programs.of(item);
    return rounded(program.buffers[program.input].bytes(in.bound));
}

int64_t share_bytes(const BlockPlanInput &in, int64_t item) {
    const Program &program = in.programs.of(item);
    const Buffer &x = program.buffers[program.input];
    return rounded(mul(ceil_div(x.bytes(in.bound) / size_of(x.dtype), in.group_size), size_of(x.dtype)));
}

std::vector<std::shared_ptr<const Differentiated>> differentiate_items(const BlockPlanInput &in) {
    std::vector<std::shared_ptr<const Differentiated>> items;
    std::map<std::pair<std::vector<char>, bool>, std::shared_ptr<const Differentiated>> seen;
    bool active = in.input_requires_grad;
    for (int64_t i = 0; i < in.programs.items(); ++i) {
        const auto &trains = in.trains[i];
        const bool is_layer = i < in.programs.num_layers;
        auto &d = seen[{trains, active}];
        if (!is_layer || d == nullptr) {
            auto made = differentiate(is_layer ? in.programs.layer : in.programs.final_norm, trains, active);
            if (is_layer) d = made;
            items.push_back(std::move(made));
        } else {
            items.push_back(d);
        }
        active = active || std::count(trains.begin(), trains.end(), 1) > 0;
    }
    return items;
}

BlockPlanInput plan_input(const Config &config, const mdlm_shape &shape, Programs programs, Policies policies,
                          std::vector<std::vector<char>> trains, const Traits &traits) {
    BlockPlanInput in;
    in.programs = std::move(programs), in.policies = std::move(policies), in.trains = std::move(trains),
    in.traits = traits;
    in.bound = {most_tokens(shape), shape.seq_length};
    in.in_flight = shape.in_flight, in.group_size = config.tensor_model_parallel_size;
    in.evaluate_in_flight = shape.evaluate_in_flight != 0, in.input_requires_grad = shape.input_requires_grad != 0;
    in.borrow_input = shape.input_storage == MDLM_INPUT_BORROW, in.share_scratch = shape.share_scratch != 0;
    return in;
}

std::unique_ptr<BlockPlan> make_block_plan(BlockPlanInput input) {
    auto plan = std::make_unique<BlockPlan>();
    plan->input = std::move(input);
    sizes_of("the bytes and FLOPs of a step", [&] { Composer(*plan).compose(); });
    return plan;
}

}  // namespace mdlm

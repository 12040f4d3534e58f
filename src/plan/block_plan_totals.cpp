// SPDX-License-Identifier: Apache-2.0
// What the entries of a block plan add up to: bytes of each item and of the whole, FLOPs, replayed ops.
#include <algorithm>

#include "base/sizes.hpp"
#include "plan/unit_plan.hpp"

namespace mdlm {
namespace {

using EK = PlanEntry::Kind;

class Totals {
public:
    explicit Totals(BlockPlan &p) : p_(p), in_(p.input) {}

    void add_up(const std::vector<UnitPlan> &units) {
        p_.items.resize(in_.chain.items());
        for (const UnitPlan &u : units)
            for (int64_t i = u.unit.first; i < u.unit.first + u.unit.count; ++i) {
                p_.items[i].base = u.base;
                unit_of_.push_back(&u);
                p_.items[i].saved_bytes = in_.chain.of(i).kept_bytes(in_.bound);
                if (i > u.unit.first) continue;
                p_.items[i].saved_bytes = add(p_.items[i].saved_bytes, u.frame);
                p_.items[i].host_bytes = u.host_bytes;
            }
        for (const auto *list : {&p_.forward, &p_.backward, &p_.evaluate})
            for (const PlanEntry &e : *list) {
                if (e.kind == EK::gather_input)
                    moved_bytes_ = add(moved_bytes_, mul(share_bytes(in_, e.item), in_.group_size));
                if (e.kind != EK::forward && e.kind != EK::backward) continue;
                const bool is_backward = e.kind == EK::backward;
                const int64_t height = is_backward ? e.layout->backward_slab : e.layout->forward_slab;
                const int64_t top = add(e.slab.offset, height);
                const int64_t below = list == &p_.evaluate ? e.slab.offset : unit_of_[e.item]->slab;
                p_.scratch_bytes = std::max(p_.scratch_bytes, top - below);
                p_.peak_bytes = std::max(p_.peak_bytes, add(p_.slab_origin, top));
                if (list != &p_.evaluate) measure(e, is_backward, top);
            }
    }

private:
    void measure(const PlanEntry &e, bool is_backward, int64_t top) {
        ItemUsage &item = p_.items[e.item];
        // The unit's frame is below the slab or apart from it; inner frames are below the slab's offset.
        const int64_t used = top - unit_of_[e.item]->slab + unit_of_[e.item]->frame;
        int64_t &most = is_backward || e.replay ? item.backward_bytes : item.forward_bytes;
        const int64_t alive =
            (is_backward ? e.layout->backward_alive : e.layout->forward_alive) + used - frame_and_slab(e, is_backward);
        if (used > std::max(item.forward_bytes, item.backward_bytes)) item.most_alive_bytes = alive;
        most = std::max(most, used);
        const auto &ops = is_backward ? e.schedule->backward : e.schedule->forward;
        for (const ScheduledOp &s : ops) {
            const Cost cost = e.schedule->op(s).cost(in_.bound);
            const bool replay = s.replay || e.replay;
            int64_t &flops = replay ? item.replayed_flops : is_backward ? item.backward_flops : item.forward_flops;
            flops = add(flops, cost.flops);
            item.replayed_ops += replay;
            // What a tape counts while it runs can then be no more.
            flops_ = add(flops_, cost.flops), moved_bytes_ = add(moved_bytes_, cost.collective);
        }
    }
    static int64_t frame_and_slab(const PlanEntry &e, bool is_backward) {
        return e.layout->frame_bytes + (is_backward ? e.layout->backward_slab : e.layout->forward_slab);
    }

    BlockPlan &p_;
    const BlockPlanInput &in_;
    std::vector<const UnitPlan *> unit_of_;  // by item
    int64_t flops_ = 0, moved_bytes_ = 0;    // of a forward and its backward, all items
};

}  // namespace

void add_up(BlockPlan &plan, const std::vector<UnitPlan> &units) { Totals(plan).add_up(units); }

}  // namespace mdlm

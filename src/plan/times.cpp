// SPDX-License-Identifier: Apache-2.0
#include "plan/times.hpp"

#include <map>

#include "base/sizes.hpp"

namespace mdlm {

DType dtype_of(const Program &program) { return program.buffers[program.input].dtype; }

PhaseTimes times_of(const Schedule &s, const std::vector<ScheduledOp> &ops, Extent extent, const DeviceTable &table) {
    PhaseTimes t;
    const DType dtype = dtype_of(*s.layer->program);
    for (const ScheduledOp &op : ops) {
        int64_t &to = op.replay ? t.replayed_ns : t.own_ns;
        to = add(to, table.ns(s.op(op).cost(extent), dtype));
    }
    return t;
}

int64_t shard_ns(int64_t share_bytes, int64_t group_size, const DeviceTable &table) {
    return add(table.copy_ns(share_bytes), table.gather_ns(mul(share_bytes, group_size - 1)));
}

std::vector<ItemTimes> times_of(const BlockPlan &plan, const DeviceTable &table) {
    std::vector<ItemTimes> items(plan.items.size());
    std::vector<char> shared(plan.items.size(), 0);
    std::map<std::pair<const Schedule *, bool>, PhaseTimes> seen;
    for (const auto *list : {&plan.forward, &plan.backward})
        for (const PlanEntry &e : *list) {
            ItemTimes &item = items[e.item];
            if (e.kind == PlanEntry::Kind::shard_input) shared[e.item] = 1;
            if (e.kind != PlanEntry::Kind::forward && e.kind != PlanEntry::Kind::backward) continue;
            const bool backward = e.kind == PlanEntry::Kind::backward;
            const auto [at, is_new] = seen.try_emplace({e.schedule, backward});
            if (is_new)
                at->second = times_of(*e.schedule, backward ? e.schedule->backward : e.schedule->forward,
                                      plan.input.bound, table);
            const PhaseTimes &t = at->second;
            int64_t &own = e.replay ? item.extra_ns : backward ? item.backward_ns : item.forward_ns;
            own = add(own, t.own_ns);
            item.extra_ns = add(item.extra_ns, t.replayed_ns);
        }
    for (const Unit &u : plan.input.policies.units) {
        ItemTimes &item = items[u.first];
        if (shared[u.first])
            item.extra_ns =
                add(item.extra_ns, shard_ns(share_bytes(plan.input, u.first), plan.input.group_size, table));
        item.extra_ns =
            add(item.extra_ns, table.host_ns(plan.items[u.first].host_bytes, item.forward_ns, item.backward_ns));
    }
    return items;
}

ItemTimes sum(const std::vector<ItemTimes> &items) {
    ItemTimes all;
    for (const ItemTimes &i : items)
        all.forward_ns = add(all.forward_ns, i.forward_ns), all.backward_ns = add(all.backward_ns, i.backward_ns),
        all.extra_ns = add(all.extra_ns, i.extra_ns);
    add(add(all.forward_ns, all.backward_ns), all.extra_ns);  // a whole step fits, too
    return all;
}

}  // namespace mdlm

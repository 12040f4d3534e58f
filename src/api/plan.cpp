// SPDX-License-Identifier: Apache-2.0
#include "api/objects.hpp"
#include "api/text.hpp"
#include "base/structs.hpp"
#include "block/rotary.hpp"

using namespace mdlm;

namespace {

Cancellation cancellation_of(const mdlm_target &t, const char *call) {
    return {t.cancelled, t.cancelled_payload, call};
}
mdlm_target target_of(const mdlm_target *target) {
    return target != nullptr ? copy_in(target, "target") : defaults<mdlm_target>();
}

// A budget is for plans that are to be found.
Plan make(const mdlm_config *config, const mdlm_shape *shape, const mdlm_target &t, bool with_budget,
          Cancellation *cancellation = nullptr) {
    mdlm_config c = copy_in(config, "config");
    if (!with_budget) validate(c), c.memory_budget = c.memory_budget_includes_parameters = 0;
    const mdlm_shape s = copy_in(shape, "shape");
    DeviceTable table = device_table(t.device_table != nullptr ? t.device_table : "cpu");
    const Traits traits = table.scratch_bytes != 0 ? Traits{} : traits_of(t.device, t.num_threads);
    return Plan(c, s, traits, {}, std::move(table), rotary_table_bytes(resolve(c), s.seq_length), cancellation);
}

uint64_t u(int64_t v) { return static_cast<uint64_t>(v); }

Storage storage_of(mdlm_storage s) {
    if (s < MDLM_STORAGE_KEEP || s > MDLM_STORAGE_HOST)
        fail(MDLM_ERROR_ARGUMENT, "storage = %d: expected one of MDLM_STORAGE_KEEP, _REPLAY, _SHARD, _HOST", s);
    return static_cast<Storage>(s);
}

}  // namespace

mdlm_status mdlm_plan_create(const mdlm_config *config, const mdlm_shape *shape, const mdlm_target *target,
                             mdlm_plan **out) {
    return guard([&] {
        not_null(out, "out");
        const mdlm_target t = target_of(target);
        Cancellation cancellation = cancellation_of(t, "mdlm_plan_create");
        *out = new mdlm_plan(make(config, shape, t, true, &cancellation));
    });
}

void mdlm_plan_destroy(mdlm_plan *plan) { delete plan; }

mdlm_status mdlm_plan_set(mdlm_plan *plan, int64_t layer, const char *tensor, mdlm_storage storage) {
    return guard([&] {
        not_null(plan, "plan");
        not_null(tensor, "tensor");
        plan->plan.set(layer, tensor, storage_of(storage));
    });
}

mdlm_status mdlm_plan_get(const mdlm_plan *plan, int64_t layer, const char *tensor, mdlm_storage *out) {
    return guard([&] {
        not_null(plan, "plan");
        not_null(tensor, "tensor");
        not_null(out, "out");
        *out = static_cast<mdlm_storage>(plan->plan.get(layer, tensor));
    });
}

mdlm_status mdlm_plan_set_unit(mdlm_plan *plan, int64_t first, int64_t count) {
    return guard([&] {
        not_null(plan, "plan");
        plan->plan.set_unit(first, count);
    });
}

const char *mdlm_plan_tensor(const mdlm_plan *plan, int64_t layer, int32_t index) {
    const char *name = nullptr;
    guard([&] {
        not_null(plan, "plan");
        name = plan->plan.tensor(layer, index);
    });
    return name;
}

mdlm_status mdlm_plan_get_layer(const mdlm_plan *plan, int64_t layer, mdlm_plan_layer *info) {
    return guard([&] {
        not_null(plan, "plan");
        const BlockPlan &b = plan->plan.block_plan();
        if (layer < 0 || layer >= static_cast<int64_t>(b.items.size()))
            fail(MDLM_ERROR_ARGUMENT, "layer = %lld: expected 0 .. %zu", (long long)layer, b.items.size() - 1);
        const ItemUsage &p = b.items[layer];
        const Unit &unit = plan->plan.policies().unit_of(layer);
        const ItemTimes t = plan->plan.times()[layer];
        const mdlm_plan_layer l = {sizeof l,          unit.first,          unit.count,          u(p.saved_bytes),
                                   u(p.host_bytes),   u(p.forward_bytes),  u(p.backward_bytes), u(p.most_alive_bytes),
                                   u(p.replayed_ops), u(p.replayed_flops), u(p.forward_flops),  u(p.backward_flops),
                                   u(t.forward_ns),   u(t.backward_ns),    u(t.extra_ns)};
        copy_out(info, l, "info");
    });
}

mdlm_status mdlm_plan_memory(const mdlm_plan *plan, mdlm_memory *memory) {
    return guard([&] {
        not_null(plan, "plan");
        const Plan &p = plan->plan;
        copy_out(memory,
                 memory_of(p.block_plan(), p.config(), p.shape().seq_length, p.parameter_bytes(), p.gradient_bytes()),
                 "memory");
    });
}

mdlm_status mdlm_plan_get_cost(const mdlm_plan *plan, mdlm_plan_cost *cost) {
    return guard([&] {
        not_null(plan, "plan");
        const ItemTimes t = sum(plan->plan.times());
        const Plan::Proof &p = plan->plan.proof();
        const mdlm_plan_cost c = {sizeof c,      u(t.forward_ns),       u(t.backward_ns),
                                  u(t.extra_ns), u(p.budget_bytes),     u(p.minimum_budget_bytes),
                                  u(p.gap_ns),   p.includes_parameters, p.optimal};
        copy_out(cost, c, "cost");
    });
}

mdlm_status mdlm_plan_frontier(const mdlm_config *config, const mdlm_shape *shape, const mdlm_target *target,
                               uint64_t *peak_bytes, uint64_t *extra_ns, size_t cap, size_t *out_count,
                               uint64_t *out_gap_ns) {
    return guard([&] {
        if (cap != 0) not_null(peak_bytes, "peak_bytes"), not_null(extra_ns, "extra_ns");
        not_null(out_count, "out_count");
        const mdlm_target t = target_of(target);
        Cancellation cancellation = cancellation_of(t, "mdlm_plan_frontier");
        const auto [points, gap_ns] = make(config, shape, t, false).frontier(&cancellation);
        for (size_t i = 0; i < std::min(cap, points.size()); ++i)
            peak_bytes[i] = u(points[i].peak_bytes), extra_ns[i] = u(points[i].extra_ns);
        *out_count = points.size();
        if (out_gap_ns != nullptr) *out_gap_ns = u(gap_ns);
    });
}

const char *mdlm_device_table_name(int32_t index) { return device_table_name(index); }

mdlm_status mdlm_device_table(const char *table, char *buf, size_t cap, size_t *out_len) {
    return guard([&] {
        not_null(table, "table");
        write_text(to_json(device_table(table)), buf, cap, out_len);
    });
}

mdlm_status mdlm_plan_print(const mdlm_plan *plan, char *buf, size_t cap, size_t *out_len) {
    return guard([&] {
        not_null(plan, "plan");
        write_text(print(plan->plan), buf, cap, out_len);
    });
}

mdlm_status mdlm_plan_to_json(const mdlm_plan *plan, char *buf, size_t cap, size_t *out_len) {
    return guard([&] {
        not_null(plan, "plan");
        write_text(to_json(plan->plan), buf, cap, out_len);
    });
}

mdlm_status mdlm_plan_from_json(const mdlm_config *config, const mdlm_shape *shape, const mdlm_target *target,
                                const char *text, size_t length, mdlm_plan **out) {
    return guard([&] {
        not_null(text, "text");
        not_null(out, "out");
        Plan plan = make(config, shape, target_of(target), false);
        from_json(plan, {text, length});
        *out = new mdlm_plan(std::move(plan));
    });
}

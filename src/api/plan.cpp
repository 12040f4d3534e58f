#include "api/objects.hpp"
#include "api/text.hpp"
#include "base/structs.hpp"

using namespace mdlm;

namespace {

Plan make(const mdlm_config *config, const mdlm_shape *shape, const mdlm_target *target) {
    const mdlm_config c = take(config, "config");
    const mdlm_shape s = take(shape, "shape");
    const mdlm_target t = target != nullptr ? take(target, "target") : defaults<mdlm_target>();
    return Plan(c, s, traits_of(t.device, t.num_threads), {});
}

Storage storage_of(mdlm_storage s) {
    if (s < MDLM_KEEP || s > MDLM_HOST) fail(MDLM_ERROR_ARGUMENT, "storage = %d: expected one of MDLM_KEEP, _REPLAY, _SHARD, _HOST", s);
    return static_cast<Storage>(s);
}

}  // namespace

mdlm_status mdlm_plan_create(const mdlm_config *config, const mdlm_shape *shape, const mdlm_target *target, mdlm_plan **out) {
    return guard([&] {
        not_null(out, "out");
        *out = new mdlm_plan(make(config, shape, target));
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
        const ItemPlan &p = b.items[layer];
        const Unit &unit = plan->plan.policies().unit_of(layer);
        const auto u = [](int64_t v) { return static_cast<uint64_t>(v); };
        const mdlm_plan_layer l = {sizeof l, unit.first, unit.count, u(p.saved_bytes), u(p.host_bytes), u(p.forward_bytes), u(p.backward_bytes),
                                   u(p.most_alive_bytes), u(p.replayed_ops), u(p.replayed_flops), u(p.forward_flops), u(p.backward_flops), 0, 0, 0};
        give(info, l, "info");
    });
}

mdlm_status mdlm_plan_memory(const mdlm_plan *plan, mdlm_memory *memory) {
    return guard([&] {
        not_null(plan, "plan");
        const Plan &p = plan->plan;
        give(memory, memory_of(p.block_plan(), p.config(), p.shape().seq_length, p.parameter_bytes(), p.gradient_bytes()), "memory");
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

mdlm_status mdlm_plan_from_json(const mdlm_config *config, const mdlm_shape *shape, const mdlm_target *target, const char *text, size_t length,
                                mdlm_plan **out) {
    return guard([&] {
        not_null(text, "text");
        not_null(out, "out");
        Plan plan = make(config, shape, target);
        from_json(plan, {text, length});
        *out = new mdlm_plan(std::move(plan));
    });
}

// Reserving: everything is made first, then put in place at once, so that a failure leaves what was.
#include <algorithm>

#include "base/sizes.hpp"
#include "block/reservation.hpp"
#include "block/rotary.hpp"
#include "plan/plan.hpp"

namespace mdlm {

mdlm_memory memory_of(const BlockPlan &plan, const Config &config, int64_t positions, int64_t parameter_bytes, int64_t gradient_bytes) {
    mdlm_memory m = MDLM_MEMORY_INIT;
    m.peak_bytes = static_cast<uint64_t>(plan.peak_bytes);
    m.fixed_bytes = static_cast<uint64_t>(plan.fixed_bytes);
    m.saved_bytes = static_cast<uint64_t>(plan.stack_bytes);
    m.scratch_bytes = static_cast<uint64_t>(plan.scratch_bytes);
    m.host_bytes = static_cast<uint64_t>(mul(plan.host_bytes, plan.input.in_flight));
    m.parameter_bytes = static_cast<uint64_t>(add(parameter_bytes, rotary_table_bytes(config, positions)));
    m.gradient_bytes = static_cast<uint64_t>(gradient_bytes);
    return m;
}

void Block::reserve(const mdlm_shape &shape, const Policies *policies) {
    check_shape(config_, shape);
    if (reservation_ != nullptr)
        for (const auto &tape : reservation_->tapes)
            if (tape->taken) fail(MDLM_ERROR_STATE, "reserve: tapes of the last reservation exist: expected them destroyed first");
    auto r = std::make_unique<Reservation>();
    r->shape = shape;
    const Traits traits = engine_.device->traits();
    Policies own;
    if (policies == nullptr) {
        own = Plan(config_.raw, shape, traits, params_.trains(), engine_.table, rotary_table_bytes(config_, shape.seq_length)).policies();
        policies = &own;
    }
    r->plan = make_block_plan(plan_input(config_, shape, programs_, *policies, params_.trains(), traits));
    const BlockPlan &plan = *r->plan;
    if (shape.max_bytes != 0 && static_cast<uint64_t>(plan.peak_bytes) > shape.max_bytes)
        fail(MDLM_ERROR_BUDGET, "max_bytes = %llu: the plan's peak_bytes is %lld", (unsigned long long)shape.max_bytes, (long long)plan.peak_bytes);

    r->arena = engine_.device_memory.allocate(plan.own_bytes(), "arena");
    // Nothing in shared scratch outlives a call, so it can be replaced even while other blocks' tapes are in flight.
    Memory shared;
    if (plan.shared_bytes() > engine_.shared_scratch.bytes()) shared = engine_.device_memory.allocate(plan.shared_bytes(), "shared scratch");
    r->host = engine_.host_memory.allocate(mul(plan.host_bytes, shape.in_flight), "host storage");
    r->rotary = engine_.device_memory.allocate(rotary_table_bytes(config_, shape.seq_length), "rotary table");
    if (r->rotary.get() != nullptr) fill_rotary_table(config_, shape.seq_length, *engine_.device, r->rotary.get());
    if (shape.max_documents > 0) r->documents.reserve(shape.seq_length);
    for (int64_t i = 0; i < shape.in_flight; ++i) {
        auto tape = std::make_unique<Tape>();
        tape->index = i;
        if (shape.max_documents > 0) {
            tape->documents.reserve(shape.seq_length);
            tape->offsets.offsets.resize(static_cast<size_t>(shape.max_documents) + 1);
        }
        r->tapes.push_back(std::move(tape));
    }
    prepare_shape(*r, {shape.seq_length * std::max<int64_t>(1, most_tokens(shape) / shape.seq_length), shape.seq_length});
    Params::Storage storage = params_.prepare(engine_);

    release();
    params_.commit(engine_, std::move(storage));
    reservation_ = std::move(r);
    if (shared.get() != nullptr) {
        engine_.arena_bytes += shared.bytes() - engine_.shared_scratch.bytes();
        engine_.shared_scratch = std::move(shared);
    }
    engine_.arena_bytes += reservation_->arena.bytes();
    engine_.host_bytes += reservation_->host.bytes();
    engine_.parameter_bytes += reservation_->rotary.bytes();
}

void Block::release() {
    if (reservation_ == nullptr) return;
    engine_.arena_bytes -= reservation_->arena.bytes();
    engine_.host_bytes -= reservation_->host.bytes();
    engine_.parameter_bytes -= reservation_->rotary.bytes();
    reservation_.reset();
}

void Block::prepare_shape(Reservation &r, Extent extent) {
    const auto same = [&](const Extent &e) { return e.tokens == extent.tokens && e.seq == extent.seq; };
    if (std::any_of(r.prepared.begin(), r.prepared.end(), same)) return;
    Device &device = *engine_.device;
    device.begin_shape();
    for (const auto &op : programs_.layer->ops) op->prepare(device, extent);
    const Differentiated *last = nullptr;
    for (const auto &d : r.plan->layers) {
        if (d.get() == last) continue;
        last = d.get();
        for (const auto &op : d->backward) op->prepare(device, extent);
    }
    r.prepared[r.next_prepared] = extent;
    r.next_prepared = (r.next_prepared + 1) % r.prepared.size();
}

}  // namespace mdlm

// SPDX-License-Identifier: Apache-2.0
// Reserving: everything is made first, then put in place at once, so that a failure leaves what was.
#include <algorithm>
#include <set>

#include "base/sizes.hpp"
#include "base/structs.hpp"
#include "block/remarks.hpp"
#include "block/reservation.hpp"
#include "block/rotary.hpp"
#include "plan/plan.hpp"

namespace mdlm {

mdlm_memory memory_of(const BlockPlan &plan, const Config &config, int64_t positions, int64_t parameter_bytes,
                      int64_t gradient_bytes) {
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

void Block::reserve(const mdlm_shape *given, const Policies *policies, const Config *planned_for) {
    std::unique_ptr<Reservation> r;
    Memory shared;
    Params::Storage storage;
    Memory states;
    std::string remark;
    Statement statement("mdlm_block_reserve");
    std::array<std::vector<Group::Text>, 3> texts;
    engine_.cancellation.begin(statement.call);
    engine_.group.together(statement, [&] {
        engine_.cancellation.check("at its start");
        const mdlm_shape shape = copy_in(given, "shape");
        if (planned_for != nullptr && planned_for->digest != config_.digest)
            fail(MDLM_ERROR_CONFIG, "plan: it was made for another config than the block's");
        check_shape(config_, shape);
        if (reservation_ != nullptr)
            for (const auto &tape : reservation_->tapes)
                if (tape->taken)
                    fail(MDLM_ERROR_STATE,
                         "reserve: tapes of the last reservation exist: expected them destroyed first");
        r = prepare_reservation(shape, policies);
        const BlockPlan &plan = *r->plan;
        if (engine_.log.listens()) remark = remark_on_plan(config_, shape, plan);
        // Nothing in shared scratch outlives a call, so it can be replaced even while other blocks' tapes are in
        // flight.
        if (plan.shared_bytes() > engine_.shared_scratch.bytes())
            shared = engine_.device_memory.allocate(plan.shared_bytes(), "shared scratch");
        storage = params_.prepare(engine_);
        states = states_.prepare(engine_);
        const auto same = [&](const char *name, int64_t value) { statement.say(name, MDLM_ERROR_SHAPE, value); };
        statement.say("version of the library", MDLM_ERROR_COMM, MDLM_API_VERSION);
        same("shape.seq_length", shape.seq_length);
        same("shape.micro_batch_size", shape.micro_batch_size);
        same("shape.max_tokens", most_tokens(shape));
        same("shape.max_documents", shape.max_documents);
        same("shape.in_flight", shape.in_flight);
        same("shape.evaluate_in_flight", shape.evaluate_in_flight);
        same("shape.input_requires_grad", shape.input_requires_grad);
        statement.say("desc.device", MDLM_ERROR_CONFIG, engine_.device->traits().kind);
        statement.say("num_layers", MDLM_ERROR_CONFIG, config_.num_layers);
        if (engine_.group.size() > 1) texts = what_runs(*r);
    });
    for (const auto &list : texts) engine_.group.compare(list, MDLM_ERROR_CONFIG);
    r->number = engine_.group.next_number();

    release();
    params_.commit(engine_, std::move(storage));
    states_.commit(engine_, std::move(states));
    reservation_ = std::move(r);
    if (shared.get() != nullptr) {
        engine_.arena_bytes += shared.bytes() - engine_.shared_scratch.bytes();
        engine_.shared_scratch = std::move(shared);
    }
    engine_.arena_bytes += reservation_->arena.bytes();
    engine_.host_bytes += reservation_->host.bytes();
    engine_.parameter_bytes += reservation_->rotary.bytes();
    if (!remark.empty()) engine_.log.write(remark.c_str());
}

// Everything that a reservation owns alone.
std::unique_ptr<Block::Reservation> Block::prepare_reservation(const mdlm_shape &shape, const Policies *policies) {
    auto r = std::make_unique<Reservation>();
    r->shape = shape;
    const Traits traits = engine_.device->traits();
    Policies own;
    if (policies == nullptr) {
        own = Plan(config_.raw, shape, traits, params_.trains(), engine_.table,
                   rotary_table_bytes(config_, shape.seq_length), &engine_.cancellation, &chain_)
                  .policies();
        policies = &own;
    }
    r->plan = make_block_plan(plan_input(config_, shape, chain_, *policies, params_.trains(), traits));
    const BlockPlan &plan = *r->plan;
    if (shape.max_bytes != 0 && static_cast<uint64_t>(plan.peak_bytes) > shape.max_bytes)
        fail(MDLM_ERROR_BUDGET, "max_bytes = %llu: the plan's peak_bytes is %lld", (unsigned long long)shape.max_bytes,
             (long long)plan.peak_bytes);

    engine_.cancellation.check("when its plan was made");
    r->arena = engine_.device_memory.allocate(plan.own_bytes(), "arena");
    r->host = engine_.host_memory.allocate(mul(plan.host_bytes, shape.in_flight), "host storage");
    r->rotary = engine_.device_memory.allocate(rotary_table_bytes(config_, shape.seq_length), "rotary table");
    if (r->rotary.get() != nullptr) fill_rotary_table(config_, shape.seq_length, *engine_.device, r->rotary.get());
    const int64_t packed = shape.max_documents > 0 ? shape.seq_length : 0;
    const auto make_room = [&](CallState &call) {
        if (plan.input.call_state_bytes == 0) call.reserve(packed);
        else call.reserve(packed, engine_.host_memory.allocate(plan.input.call_state_bytes, "state of a call"));
    };
    for (CallState &call : r->evaluations) make_room(call);
    r->events = engine_.device->make_events(
        event_number(EventOf::image_copied, shape.in_flight + static_cast<int64_t>(r->evaluations.size())));
    for (int64_t i = 0; i < shape.in_flight; ++i) {
        auto tape = std::make_unique<Tape>();
        tape->block = this;
        tape->index = i;
        tape->sides.resize(chain_.sides.size());
        make_room(tape->call);
        if (shape.max_documents > 0) {
            tape->offsets.offsets.resize(static_cast<size_t>(shape.max_documents) + 1);
        }
        r->tapes.push_back(std::move(tape));
    }
    prepare_shape(*r,
                  {shape.seq_length * std::max<int64_t>(1, most_tokens(shape) / shape.seq_length), shape.seq_length});
    return r;
}

// Ranks that would run different programs must not begin: what they compare, in lists. With equal settings they have
// the same parameters and tensors.
std::array<std::vector<Group::Text>, 3> Block::what_runs(const Reservation &r) const {
    std::array<std::vector<Group::Text>, 3> texts;
    for (int32_t i = 0; i < config_key_count(); ++i)
        texts[0].push_back({config_key(i), config_get(config_.raw, config_key(i))});
    for (const ParamEntry &p : params_.entries())
        texts[1].push_back({"requires_grad of " + p.name, p.requires_grad ? "1" : "0"});
    const Policies &policies = r.plan->input.policies;
    for (int64_t i = 0; i < chain_.items(); ++i) {
        const std::string layer = "plan of layer " + std::to_string(i) + ": ";
        const Unit &unit = policies.unit_of(i);
        texts[2].push_back(
            {layer + "its unit", std::to_string(unit.count) + " from layer " + std::to_string(unit.first)});
        for (BufferId b : tensors_of(chain_.of(i)))
            texts[2].push_back({layer + chain_.of(i).buffers[static_cast<size_t>(b)].name,
                                name_of(policies.items[static_cast<size_t>(i)][static_cast<size_t>(b)])});
    }
    return texts;
}

void Block::release() {
    if (reservation_ == nullptr) return;
    engine_.arena_bytes -= reservation_->arena.bytes();
    engine_.host_bytes -= reservation_->host.bytes();
    engine_.parameter_bytes -= reservation_->rotary.bytes();
    reservation_.reset();
}

void Block::prepare_shape(Reservation &r, Extent extent) {
    ++r.calls;
    for (auto &p : r.prepared)
        if (p.used != 0 && p.extent.tokens == extent.tokens && p.extent.seq == extent.seq) {
            p.used = r.calls;
            return;
        }
    auto made = prepare_ops(*engine_.device, *r.plan, extent);
    auto &oldest = *std::min_element(r.prepared.begin(), r.prepared.end(),
                                     [](const auto &a, const auto &b) { return a.used < b.used; });
    oldest = {extent, r.calls, std::move(made)};
}

std::shared_ptr<void> prepare_ops(Device &device, const BlockPlan &plan, Extent extent) {
    auto made = device.begin_shape();
    std::set<const void *> seen;
    for (const Item &item : plan.input.chain.list)
        if (seen.insert(item.program.get()).second)
            for (const auto &op : item.program->ops) op->prepare(device, extent);
    for (const auto &d : plan.layers)
        if (seen.insert(d.get()).second)
            for (const auto &op : d->backward) op->prepare(device, extent);
    return made;
}

}  // namespace mdlm

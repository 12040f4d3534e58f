// SPDX-License-Identifier: Apache-2.0
// A forward and a backward: what is checked and agreed on, what is bound, and running it.
#include <algorithm>
#include <cstdio>

#include "base/float_environment.hpp"
#include "base/sizes.hpp"
#include "base/structs.hpp"
#include "block/block.hpp"
#include "block/reservation.hpp"

namespace mdlm {
namespace {

void check_aligned(const void *p, int64_t alignment, const char *name) {
    if (p == nullptr) fail(MDLM_ERROR_ARGUMENT, "%s is NULL", name);
    if (reinterpret_cast<uintptr_t>(p) % static_cast<uintptr_t>(alignment) != 0)
        fail(MDLM_ERROR_ARGUMENT, "%s = %p: expected an address aligned to %lld", name, p, (long long)alignment);
}

void check_apart(const void *a, uint64_t a_bytes, const char *a_name, const void *b, uint64_t b_bytes,
                 const char *b_name) {
    const auto p = reinterpret_cast<uintptr_t>(a), q = reinterpret_cast<uintptr_t>(b);
    if (p < q + b_bytes && q < p + a_bytes)
        fail(MDLM_ERROR_ARGUMENT, "%s and %s overlap: expected %llu bytes apart", a_name, b_name,
             (unsigned long long)(p < q ? a_bytes : b_bytes));
}

// What ranks must agree on in a batch. x is theirs to agree on.
void say(Statement &s, const mdlm_batch &b, const RunState &state, const int32_t *offsets, int64_t count) {
    const auto shape = [&](const char *name, int64_t value) { s.say(name, MDLM_ERROR_SHAPE, value); };
    shape("batch.seq_length", b.seq_length);
    shape("batch.micro_batch_size", b.micro_batch_size);
    shape("batch.num_documents", offsets != nullptr ? count : 0);
    shape("batch.attention_mask_type", state.mask.type);
    uint64_t documents = digest_start;
    for (int64_t i = 0; offsets != nullptr && i <= count; ++i)
        documents = (documents ^ static_cast<uint32_t>(offsets[i])) * 0x100000001b3u;
    shape("batch.cu_seqlens (its digest)", static_cast<int64_t>(documents));
    shape("batch.training", b.training);
    shape("batch.seed", static_cast<int64_t>(b.seed));
    shape("batch.step", b.step);
    shape("batch.micro_batch_index", b.micro_batch_index);
}

}  // namespace

RunBindings Block::bindings(Reservation &r, const RunState &state, const Tape *tape) const {
    RunBindings b;
    b.arena = r.arena.get();
    b.events = r.events.get();
    b.state = state;
    if (r.rotary.get() != nullptr) b.state.cos = r.rotary.get(), b.state.sin = r.rotary.get() + r.rotary.bytes() / 2;
    b.params = &params_;
    b.states = &states_;
    const bool apart = r.plan->input.share_scratch;
    if (apart) b.shared = engine_.shared_scratch.get();
    if (tape != nullptr) {
        b.stack = (apart ? 0 : r.plan->fixed_bytes) + tape->index * r.plan->stack_bytes;
        b.host = r.host.get() + tape->index * r.plan->host_bytes;
    }
    return b;
}

CallState &Block::image_of(Reservation &r, int64_t image) const {
    return image < r.shape.in_flight ? r.tapes[image]->call : r.evaluations[image - r.shape.in_flight];
}

// On a device with a memory of its own the state's pointers go to what is copied there, in the order of the stream.
void Block::copy_state(Reservation &r, int64_t image, const Place &place, RunBindings &b) {
    if (!engine_.device->traits().asynchronous) return;
    const CallState &call = image_of(r, image);
    char *at = address_of(*r.plan, b, place);
    engine_.device->transfer(Stream::compute, at, call.image(), static_cast<size_t>(r.plan->input.call_state_bytes));
    r.events->record(event_number(EventOf::image_copied, image), Stream::compute);
    call.point(b.state, at);
}

void Block::forward(const mdlm_batch *given, const void *x, Tape *tape, void *y, const void *const *sides) {
    RunState state;
    int64_t image = tape != nullptr ? tape->index : 0;
    Statement statement("mdlm_block_forward");
    engine_.cancellation.begin(statement.call);
    engine_.group.together(statement, [&] {
        engine_.cancellation.check("at its start");
        engine_.device->check();
        const mdlm_batch batch = copy_in(given, "batch");
        Reservation &r = reserved();
        if (tape != nullptr && tape->block != this) fail(MDLM_ERROR_ARGUMENT, "tape: it belongs to another block");
        const mdlm_io in = input_io(batch), out = output_io(batch);
        check_aligned(x, static_cast<int64_t>(in.alignment), "x");
        check_aligned(y, static_cast<int64_t>(out.alignment), "y");
        check_apart(x, in.bytes, "x", y, out.bytes, "y");
        for (size_t i = 0; i < chain_.sides.size(); ++i) {
            const Buffer &side = chain_.sides[i];
            check_aligned(sides != nullptr ? sides[i] : nullptr, size_of(side.dtype), side.name.c_str());
        }
        if (tape != nullptr && tape->full)
            fail(MDLM_ERROR_STATE, "tape: it holds a forward: expected mdlm_block_backward or mdlm_tape_reset before");
        if (tape == nullptr && r.in_flight > 0 && r.shape.evaluate_in_flight == 0)
            fail(MDLM_ERROR_STATE,
                 "forward without a tape while %lld tapes are in flight: expected evaluate_in_flight = 1 in the "
                 "reserved shape",
                 (long long)r.in_flight);
        const int32_t *offsets = batch.cu_seqlens;
        int64_t count = batch.num_documents;
        if (offsets == nullptr && tape != nullptr && tape->offsets.count > 0)
            offsets = tape->offsets.offsets.data(), count = tape->offsets.count;
        if (offsets != nullptr) check_documents(offsets, count, r.shape.max_documents, batch.seq_length, "cu_seqlens");
        if (tape == nullptr) image = r.shape.in_flight + r.evaluated++ % static_cast<int64_t>(r.evaluations.size());
        CallState &call = image_of(r, image);
        r.events->finish(event_number(EventOf::image_copied, image));
        state = make_state(config_, batch, offsets, count, call);
        state.rank = engine_.group.rank();
        prepare_shape(r, state.extent());
        say(statement, batch, state, offsets, count);
        statement.say("block (which of the group's reserves it had)", MDLM_ERROR_COMM, r.number);
        statement.say("forward with a tape", MDLM_ERROR_COMM, tape != nullptr);
        statement.say("number of forwards so far", MDLM_ERROR_COMM, static_cast<int64_t>(forwards_));
    });

    Reservation &r = *reservation_;
    RunBindings b = bindings(r, state, tape);
    b.x = x, b.y = y, b.sides = sides;
    Counts counts;
    engine_.group.run([&] {
        copy_state(r, image, tape != nullptr ? r.plan->call_state : r.plan->evaluation_state, b);
        Runner runner(engine_, *r.plan, b, counts);
        runner.begin();
        for (const PlanEntry &e : tape != nullptr ? r.plan->forward : r.plan->evaluate) runner.run(e);
        runner.end();
    });
    ++forwards_;
    engine_.high_water_bytes = std::max(engine_.high_water_bytes, static_cast<int64_t>(counts.high_water_bytes));
    if (tape == nullptr) return;
    tape->state = b.state;
    tape->x = x;
    std::copy(sides, sides + tape->sides.size(), tape->sides.begin());
    tape->params_version = params_.version;
    tape->counts = counts;
    tape->forward = forwards_;
    tape->full = true;
    ++r.in_flight;
}

void Block::backward(Tape *tape, const mdlm_backward_options *given, const void *dy, void *dx) {
    mdlm_backward_options options = defaults<mdlm_backward_options>();
    Statement statement("mdlm_block_backward");
    engine_.cancellation.begin(statement.call);
    engine_.group.together(statement, [&] {
        engine_.cancellation.check("at its start");
        engine_.device->check();
        if (given != nullptr) options = copy_in(given, "options");
        Reservation &r = reserved();
        if (tape == nullptr) fail(MDLM_ERROR_ARGUMENT, "tape is NULL");
        if (tape->block != this) fail(MDLM_ERROR_ARGUMENT, "tape: it belongs to another block");
        if (!tape->full) fail(MDLM_ERROR_STATE, "tape: it is empty: expected mdlm_block_forward with it before");
        if (tape->params_version != params_.version)
            fail(MDLM_ERROR_STATE, "tape: parameters changed since its forward: expected them unchanged");
        if (options.overwrite_grads != 0 && options.overwrite_grads != 1)
            fail(MDLM_ERROR_ARGUMENT, "options.overwrite_grads = %d: expected 0 or 1", options.overwrite_grads);
        if (params_.grads_dirty && options.overwrite_grads == 0)
            fail(MDLM_ERROR_STATE, "gradients are undefined after a backward that failed: expected "
                                   "mdlm_params_zero_grads or overwrite_grads");
        check_aligned(dy, engine_.device->alignment(output().dtype), "dy");
        if (r.plan->wants_dx) check_aligned(dx, engine_.device->alignment(input().dtype), "dx");
        else if (dx != nullptr)
            fail(MDLM_ERROR_ARGUMENT, "dx = %p: expected NULL, the shape was reserved with input_requires_grad = 0",
                 dx);
        const auto bytes = [&](const Buffer &b) { return static_cast<uint64_t>(b.bytes(tape->state.extent())); };
        if (dx != nullptr && (dx != dy || !input().same_form(output())))
            check_apart(dx, bytes(input()), "dx", dy, bytes(output()), "dy");
        prepare_shape(r, tape->state.extent());
        statement.say("block (which of the group's reserves it had)", MDLM_ERROR_COMM, r.number);
        statement.say("options.overwrite_grads", MDLM_ERROR_COMM, options.overwrite_grads);
        statement.say("forward that the tape holds", MDLM_ERROR_COMM, static_cast<int64_t>(tape->forward));
    });

    Reservation &r = *reservation_;
    RunBindings b = bindings(r, tape->state, tape);
    b.state.accumulate = options.overwrite_grads == 0;
    b.x = tape->x, b.dy = dy, b.dx = dx, b.sides = tape->sides.data();
    tape->full = false;
    --r.in_flight;
    params_.grads_dirty = true;
    engine_.group.run([&] { run_backward(r, *tape, b, options); });
    params_.grads_dirty = false;
    engine_.high_water_bytes = std::max(engine_.high_water_bytes, static_cast<int64_t>(tape->counts.high_water_bytes));
}

void Block::run_backward(Reservation &r, Tape &tape, RunBindings &b, const mdlm_backward_options &options) {
    Runner runner(engine_, *r.plan, b, tape.counts);
    runner.begin();
    for (const PlanEntry &e : r.plan->backward) {
        runner.run(e);
        if (e.kind != PlanEntry::Kind::backward || options.grad_ready == nullptr) continue;
        const auto &trains = r.plan->input.trains[e.item];
        if (std::count(trains.begin(), trains.end(), 1) == 0) continue;
        char before[512];
        std::snprintf(before, sizeof before, "%s", last_error());
        set_last_error("");  // what it says with mdlm_set_last_error becomes part of our line
        const mdlm_status status = [&] {
            const CallersFloats floats;
            return options.grad_ready(options.payload, e.item);
        }();
        if (status != MDLM_OK)
            fail(MDLM_ERROR_CALLBACK, "grad_ready of layer %lld returned %d (%s)%s%s: expected MDLM_OK",
                 (long long)e.item, status, mdlm_status_name(status), last_error()[0] != 0 ? " " : "", last_error());
        set_last_error(before);
    }
    runner.end();
}

}  // namespace mdlm

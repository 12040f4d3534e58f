// SPDX-License-Identifier: Apache-2.0
#include "block/runner.hpp"

#include <algorithm>
#include <array>
#include <utility>

#include "base/float_environment.hpp"
#include "base/sizes.hpp"

namespace mdlm {
namespace {

constexpr size_t most_operands = 16;

mdlm_work work_of(const Cost &cost) {
    if (cost.flops == 0) return MDLM_WORK_TRANSFER;
    return !cost.matmul() ? MDLM_WORK_OTHER : cost.n > 0 ? MDLM_WORK_MATMUL : MDLM_WORK_ATTENTION;
}

Stream stream_of(const PlanEntry &e) {
    const bool moves = e.kind == PlanEntry::Kind::to_host || e.kind == PlanEntry::Kind::from_host;
    return moves ? Stream::transfer : Stream::compute;
}

}  // namespace

// Before every op, and everything that the plan moves.
void Runner::may_be_cancelled(const char *op, int64_t item) {
    if (!engine_.cancellation.possible()) return;
    if (!std::exchange(asked_, false) && engine_.cancellation.ask())
        engine_.cancellation.end("before %s of layer %lld", op, static_cast<long long>(plan_.input.chain[item].layer));
}

// Runs what the plan moves, and tells of it.
template <class F>
void Runner::observed(const PlanEntry &e, const char *op, int32_t v, int64_t bytes, F &&move) {
    may_be_cancelled(op, e.item);
    if (!observing_.on()) return move();
    const Stream stream = stream_of(e);
    observing_.begin(stream);
    move();
    mdlm_op_event event{};
    event.op = op;
    event.tensor = e.schedule->layer->program->buffers[e.schedule->values[v].buffer].name.c_str();
    event.layer = plan_.input.chain[e.item].layer;
    event.phase = e.kind == PlanEntry::Kind::from_host || e.kind == PlanEntry::Kind::gather_input ? MDLM_PHASE_BACKWARD
                                                                                                  : MDLM_PHASE_FORWARD;
    event.work = MDLM_WORK_TRANSFER;
    event.bytes = static_cast<uint64_t>(2 * bytes);
    observing_.end(event, stream);
}

int32_t event_number(EventOf what, int64_t index) {
    const auto i = static_cast<int32_t>(index);
    switch (what) {
    case EventOf::slot_used: return 2 * i;
    case EventOf::slot_moved: return 2 * i + 1;
    case EventOf::image_copied: break;
    }
    return 2 * static_cast<int32_t>(staging_slots) + i;
}

char *address_of(const BlockPlan &plan, const RunBindings &b, const Place &p) {
    switch (p.kind) {
    case Place::Kind::fixed: return (b.shared != nullptr ? b.shared : b.arena) + p.offset;
    case Place::Kind::stack: return b.arena + b.stack + p.offset;
    case Place::Kind::slab:
        return (b.shared != nullptr ? b.shared + plan.fixed_bytes : b.arena + plan.slab_origin) + p.offset;
    default: return nullptr;
    }
}

char *Runner::side(const PlanEntry &e, BufferId buffer) const {
    const Item &item = plan_.input.chain[e.item];
    const auto &sides = item.program->sides;
    const auto at = static_cast<size_t>(std::find(sides.begin(), sides.end(), buffer) - sides.begin());
    return static_cast<char *>(const_cast<void *>(b_.sides[item.sides[at]]));
}

char *Runner::address(const PlanEntry &e, int32_t v) const {
    const auto placed = [&](const Place &p, const void *callers) {
        return p.kind == Place::Kind::caller ? static_cast<char *>(const_cast<void *>(callers)) : address(p);
    };
    switch (e.schedule->values[v].home) {
    case Home::x: return placed(e.x, b_.x);
    case Home::y: return placed(e.y, b_.y);
    case Home::dy: return placed(e.dy, b_.dy);
    case Home::dx: return placed(e.dx, b_.dx);
    case Home::side: return side(e, e.schedule->values[v].buffer);
    case Home::frame:
    case Home::scratch:
    case Home::kept:
    case Home::staged: break;
    }
    const ValuePlace &place = e.layout->places[v];
    const Place &base = place.where == ValuePlace::Where::frame  ? e.frame
                        : place.where == ValuePlace::Where::slab ? e.slab
                        : place.where == ValuePlace::Where::kept ? e.kept
                                                                 : e.staging;
    return address(base) + place.offset;
}

int64_t Runner::bytes_of(const PlanEntry &e, int32_t v) const {
    const BufferId b = e.schedule->values[v].buffer;
    return b == no_buffer ? e.schedule->values[v].bytes
                          : rounded(e.schedule->layer->buffers[b].bytes(b_.state.extent()));
}

void Runner::touch(const char *at, int64_t bytes) {
    const auto used = [&](const char *begin, int64_t size, int64_t below) {
        if (at < begin || at >= begin + size) return;  // the caller's, or the other part
        counts_.high_water_bytes =
            std::max(counts_.high_water_bytes, static_cast<uint64_t>(below + (at - begin) + bytes));
    };
    used(b_.arena, plan_.own_bytes(), 0);
    if (b_.shared != nullptr) used(b_.shared, plan_.shared_bytes(), plan_.own_bytes());
}

// A staging slot is used by two streams: whoever comes waits for what the other one did there last, however long ago
// and for whichever tape.
void Runner::run(const PlanEntry &e) {
    if (e.slots == 0) return run_entry(e);
    const Stream stream = stream_of(e);
    const bool moves = stream == Stream::transfer;
    const auto each_slot = [&](auto &&f) {
        for (int64_t slot = 0; slot < staging_slots; ++slot)
            if ((e.slots >> slot & 1) != 0) f(slot);
    };
    each_slot([&](int64_t slot) {
        b_.events->wait(event_number(moves ? EventOf::slot_used : EventOf::slot_moved, slot), stream);
    });
    run_entry(e);
    each_slot([&](int64_t slot) {
        b_.events->record(event_number(moves ? EventOf::slot_moved : EventOf::slot_used, slot), stream);
    });
}

// Other blocks use the memory of shared slots between our calls: our transfers come behind what is theirs, and what is
// theirs comes behind our transfers.
void Runner::begin() {
    for (int64_t slot = 0; b_.shared != nullptr && slot < staging_slots; ++slot)
        b_.events->record(event_number(EventOf::slot_used, slot), Stream::compute);
}

void Runner::end() {
    for (int64_t slot = 0; b_.shared != nullptr && slot < staging_slots; ++slot)
        b_.events->wait(event_number(EventOf::slot_moved, slot), Stream::compute);
    observing_.tell();
}

void Runner::run_entry(const PlanEntry &e) {
    switch (e.kind) {
    case PlanEntry::Kind::copy_input: {
        const int64_t bytes = input_of(e).bytes(b_.state.extent());
        return observed(e, "copy_input", e.schedule->x, bytes,
                        [&] { engine_.device->copy(address(e.x), b_.x, static_cast<size_t>(bytes)); });
    }
    case PlanEntry::Kind::to_host: return transfer(e, true);
    case PlanEntry::Kind::from_host: return transfer(e, false);
    case PlanEntry::Kind::shard_input:
    case PlanEntry::Kind::gather_input: {
        const Buffer &x = input_of(e);
        const int64_t t = engine_.group.size(), bytes = x.bytes(b_.state.extent());
        const int64_t share = ceil_div(bytes / size_of(x.dtype), t) * size_of(x.dtype),
                      begin = share * engine_.group.rank();
        char *frame = address(e.frame);
        touch(frame, rounded(share));
        if (e.kind == PlanEntry::Kind::gather_input) {
            touch(address(e.x), rounded(share * t));
            counts_.replayed_collectives += 1, counts_.replayed_collective_bytes += static_cast<uint64_t>(share * t);
            return observed(e, "gather_input", e.schedule->x, bytes,
                            [&] { engine_.group.all_gather(frame, address(e.x), share / size_of(x.dtype), x.dtype); });
        }
        counts_.saved_bytes += static_cast<uint64_t>(rounded(share));
        const int64_t own = std::min(share, bytes - begin);
        if (own > 0)
            observed(e, "shard_input", e.schedule->x, own,
                     [&] { engine_.device->copy(frame, address(e, e.schedule->x) + begin, static_cast<size_t>(own)); });
        return;
    }
    case PlanEntry::Kind::forward:
    case PlanEntry::Kind::backward: break;
    }
    run_ops(e);
    if (e.kind == PlanEntry::Kind::forward && !e.replay) count_saved(e);
}

void Runner::run_ops(const PlanEntry &e) {
    b_.state.layer = static_cast<uint32_t>(plan_.input.chain[e.item].layer);
    b_.state.params = b_.params->data_of(e.item);
    b_.state.grads = b_.params->grads_of(e.item);
    if (b_.states != nullptr) b_.state.states = b_.states->of(e.item);
    const Extent extent = b_.state.extent();
    std::array<void *, most_operands> in{}, out{};
    for (const ScheduledOp &s : e.kind == PlanEntry::Kind::backward ? e.schedule->backward : e.schedule->forward) {
        const Op &op = e.schedule->op(s);
        may_be_cancelled(op.name(), e.item);
        const auto resolve = [&](const std::vector<int32_t> &values, std::array<void *, most_operands> &to) {
            if (values.size() > most_operands)
                fail(MDLM_ERROR_INTERNAL, "op %s: %zu operands: expected at most %zu", op.name(), values.size(),
                     most_operands);
            for (size_t i = 0; i < values.size(); ++i) {
                char *at = address(e, values[i]);
                touch(at, bytes_of(e, values[i]));
                to[i] = at;
            }
        };
        resolve(s.in, in);
        resolve(s.out, out);
        void *workspace = s.workspace < 0 ? nullptr : address(e, s.workspace);
        if (workspace != nullptr) touch(static_cast<char *>(workspace), bytes_of(e, s.workspace));
        if (observing_.on()) observing_.begin(Stream::compute);
        op.run({*engine_.device, engine_.group, b_.state, in.data(), out.data(), workspace});
        const Cost cost = op.cost(extent);
        count(cost, s.replay || e.replay, s.backward);
        if (observing_.on()) {
            mdlm_op_event event{};
            event.op = op.name();
            event.tensor = e.schedule->layer->tensor(s.op, s.backward).c_str();
            event.layer = plan_.input.chain[e.item].layer;
            event.phase = s.replay || e.replay ? MDLM_PHASE_REPLAY
                          : s.backward         ? MDLM_PHASE_BACKWARD
                                               : MDLM_PHASE_FORWARD;
            event.work = work_of(cost);
            if (event.work == MDLM_WORK_MATMUL)
                event.m = cost.flops / (2 * cost.n * cost.k), event.n = cost.n, event.k = cost.k;
            event.flops = static_cast<uint64_t>(cost.flops);
            event.bytes = static_cast<uint64_t>(cost.bytes);
            observing_.end(event, Stream::compute);
        }
    }
}

void Runner::count(const Cost &cost, bool replay, bool backward) {
    const auto flops = static_cast<uint64_t>(cost.flops), bytes = static_cast<uint64_t>(cost.collective);
    const uint64_t collective = cost.work == Work::collective;
    if (replay) {
        counts_.replayed_ops += 1, counts_.replayed_flops += flops;
        if (cost.matmul()) counts_.replayed_matmul_flops += flops;
        counts_.replayed_collectives += collective, counts_.replayed_collective_bytes += bytes;
    } else if (cost.of_gradients) {
        counts_.backward_ops += 1;
        counts_.gradient_collectives += collective, counts_.gradient_collective_bytes += bytes;
    } else if (backward) {
        counts_.backward_ops += 1, counts_.backward_flops += flops;
        counts_.backward_collectives += collective, counts_.backward_collective_bytes += bytes;
    } else {
        counts_.forward_ops += 1, counts_.forward_flops += flops;
        counts_.forward_collectives += collective, counts_.forward_collective_bytes += bytes;
    }
}

const Buffer &Runner::input_of(const PlanEntry &e) const {
    return e.schedule->layer->buffers[e.schedule->values[e.schedule->x].buffer];
}

void Runner::count_saved(const PlanEntry &e) {
    if (e.x.kind == Place::Kind::stack) counts_.saved_bytes += static_cast<uint64_t>(bytes_of(e, e.schedule->x));
    for (int32_t v : e.schedule->saved)
        if (e.schedule->values[v].home != Home::staged) counts_.saved_bytes += static_cast<uint64_t>(bytes_of(e, v));
}

void Runner::transfer(const PlanEntry &e, bool to_host) {
    const auto move = [&](int32_t v) {
        const ValuePlace &place = e.layout->places[v];
        if (place.where != ValuePlace::Where::staged) return;
        const auto bytes =
            static_cast<size_t>(e.schedule->layer->buffers[e.schedule->values[v].buffer].bytes(b_.state.extent()));
        char *device = address(e.staging) + place.offset, *host = b_.host + e.host + place.offset;
        touch(device, rounded(static_cast<int64_t>(bytes)));
        observed(e, to_host ? "to_host" : "from_host", v, static_cast<int64_t>(bytes), [&] {
            engine_.device->transfer(Stream::transfer, to_host ? host : device, to_host ? device : host, bytes);
        });
        if (to_host) counts_.host_bytes += static_cast<uint64_t>(bytes_of(e, v));
    };
    move(e.schedule->x);
    for (int32_t v : e.schedule->saved) move(v);
}

}  // namespace mdlm

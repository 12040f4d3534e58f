// SPDX-License-Identifier: Apache-2.0
// Calls on groups and contexts.
#include <iterator>

#include "fuzz/calls_machine.hpp"

namespace fuzz {
namespace {

// A group of two in which the other rank does and has what this one does and has.
mdlm_status blown(void *payload) {
    int64_t &fuse = static_cast<Machine *>(payload)->fuse;
    if (fuse < 0 || fuse-- > 0) return MDLM_OK;
    mdlm_set_last_error("the fuse is blown");
    return MDLM_ERROR_COMM;
}
size_t bytes_of(int64_t count, mdlm_dtype dtype) {
    return static_cast<size_t>(count) * (dtype == MDLM_DTYPE_F64 ? 8 : dtype == MDLM_DTYPE_F32 ? 4 : 2);
}
mdlm_status reduce_two(void *payload, const void *send, void *recv, int64_t count, mdlm_dtype dtype, mdlm_reduce_op,
                       int64_t, void *) {
    if (send != recv) std::memcpy(recv, send, bytes_of(count, dtype));
    return blown(payload);
}
mdlm_status gather_two(void *payload, const void *send, void *recv, int64_t count, mdlm_dtype dtype, int64_t, void *) {
    const size_t bytes = bytes_of(count, dtype);
    std::memcpy(recv, send, bytes), std::memcpy(static_cast<char *>(recv) + bytes, send, bytes);
    return blown(payload);
}
mdlm_status scatter_two(void *payload, const void *send, void *recv, int64_t count, mdlm_dtype dtype, mdlm_reduce_op,
                        int64_t, void *) {
    std::memcpy(recv, send, bytes_of(count, dtype));
    return blown(payload);
}

// Threads of the caller's that are one.
void in_turn(void *, int64_t count, void (*task)(void *, int64_t, int32_t), void *argument) {
    for (int64_t i = 0; i < count; ++i) task(argument, i, 0);
}

}  // namespace

void Machine::create_comm() {
    mdlm_comm *&slot = comms[in.pick(comms.size())];
    mdlm_comm_destroy(std::exchange(slot, nullptr));
    fuse = -1;
    if (in.chance()) {
        const int32_t size = in.number32();
        std::vector<mdlm_comm *> all(1024);
        if (call("mdlm_comm_create_threads", [&] { return mdlm_comm_create_threads(size, all.data()); }) != MDLM_OK)
            return;
        slot = all[0];
        for (size_t i = 1; i < all.size(); ++i) mdlm_comm_destroy(all[i]);
        return;
    }
    mdlm_comm_table t = MDLM_COMM_TABLE_INIT;
    t.rank = static_cast<int32_t>(in.pick(3)), t.size = 2;
    t.all_reduce = reduce_two, t.all_gather = in.pick(20) == 19 ? nullptr : gather_two, t.reduce_scatter = scatter_two,
    t.payload = this;
    call("mdlm_comm_create", [&] { return mdlm_comm_create(Struct(t, in).get(), &slot); });
}

void Machine::use_comm() {
    mdlm_comm *c = comms[in.pick(comms.size())];
    int32_t rank = -1, size = 1;
    call("mdlm_comm_rank", [&] { return mdlm_comm_rank(c, &rank, &size); });
    const int64_t count = static_cast<int64_t>(in.pick(40)), timeout = in.pick(8) == 7 ? -1 : 2;
    const mdlm_dtype dtype = static_cast<mdlm_dtype>(in.pick(6));
    const mdlm_reduce_op op = static_cast<mdlm_reduce_op>(in.pick(3));
    Buffer a(static_cast<size_t>(count * size) * 8), b(static_cast<size_t>(count * size) * 8);
    switch (in.pick(6)) {
    case 0:
        call("mdlm_comm_all_reduce", [&] {
            return mdlm_comm_all_reduce(c, a.get(), in.chance() ? a.get() : b.get(), count, dtype, op, timeout);
        });
        break;
    case 1:
        call("mdlm_comm_all_gather", [&] { return mdlm_comm_all_gather(c, a.get(), b.get(), count, dtype, timeout); });
        break;
    case 2:
        call("mdlm_comm_reduce_scatter",
             [&] { return mdlm_comm_reduce_scatter(c, a.get(), b.get(), count, dtype, op, timeout); });
        break;
    case 3:
        call("mdlm_comm_all_reduce",
             [&] { return mdlm_comm_all_reduce(c, nullptr, b.get(), in.number(), dtype, op, timeout); });
        break;
    case 4: call("mdlm_comm_abort", [&] { return mdlm_comm_abort(c); }); break;
    default: fuse = static_cast<int64_t>(in.pick(32));
    }
}

void Machine::create_context() {
    Context &slot = contexts[in.pick(contexts.size())];
    destroy_context(slot);
    mdlm_context_desc d = MDLM_CONTEXT_DESC_INIT;
    constexpr mdlm_device_kind devices[] = {MDLM_DEVICE_CPU, MDLM_DEVICE_REFERENCE, MDLM_DEVICE_CPU, MDLM_DEVICE_CUDA};
    constexpr int32_t threads[] = {1, 1, 2, 1, 1, -1, 1025};
    d.device = devices[in.pick(4)], d.num_threads = threads[in.pick(7)];
    const size_t comm = in.pick(comms.size() + 1);
    d.comm = comm == 0 ? nullptr : comms[comm - 1], d.comm_timeout_ms = 5;
    const mdlm_threadpool pool = {sizeof(mdlm_threadpool), 1 + static_cast<int32_t>(in.pick(3)), 0, in_turn, nullptr};
    if (pool.num_threads > 1) d.threadpool = &pool;
    d.log = [](void *, const char *line) { answered(line != nullptr ? MDLM_OK : MDLM_ERROR_INTERNAL, "log"); };
    d.cancelled = cancelled, d.cancelled_payload = this;
    const auto device = std::make_shared<Counter>(), host = std::make_shared<Counter>();
    counters.insert(counters.end(), {device, host});
    const mdlm_allocator device_table = device->table(), host_table = host->table();
    d.device_allocator = &device_table, d.host_allocator = &host_table;
    mdlm_context *made = nullptr;
    if (call("mdlm_context_create", [&] { return mdlm_context_create(Struct(d, in).get(), &made); }) != MDLM_OK) return;
    mdlm_context_stats stats = MDLM_CONTEXT_STATS_INIT;
    // With a struct that was too small for it, or none, the memory is the library's, and nothing is known of it.
    void *memory = nullptr;
    const bool ours = mdlm_context_alloc(made, 1, &memory) == MDLM_OK && device->live == 1;
    if (memory != nullptr) mdlm_context_free(made, memory, 1);
    answered(mdlm_context_get_stats(made, &stats), "mdlm_context_get_stats", {MDLM_OK});
    if (ours) slot = {made, device, host};
    else mdlm_context_destroy(made);
}

void Machine::use_context() {
    Context &slot = contexts[in.pick(contexts.size())];
    mdlm_context *c = slot.handle;
    char text[64];
    const auto answer = [&](const char *name, auto &&f) { call(name, [&] { return f(text, in.pick(sizeof text)); }); };
    switch (in.pick(11)) {
    case 0:
        answer("mdlm_context_info", [&](char *buf, size_t cap) { return mdlm_context_info(c, buf, cap, nullptr); });
        break;
    case 1:
        answer("mdlm_context_last_error",
               [&](char *buf, size_t cap) { return mdlm_context_last_error(c, buf, cap, nullptr); });
        break;
    case 2:
        answer("mdlm_context_get_device_table",
               [&](char *buf, size_t cap) { return mdlm_context_get_device_table(c, buf, cap, nullptr); });
        break;
    case 3:
        call("mdlm_context_set_device_table",
             [&] { return mdlm_context_set_device_table(c, device_tables[in.pick(std::size(device_tables))]); });
        break;
    case 4: call("mdlm_context_synchronize", [&] { return mdlm_context_synchronize(c); }); break;
    case 5:
        call("mdlm_context_get_stats",
             [&] { return mdlm_context_get_stats(c, Struct(mdlm_context_stats MDLM_CONTEXT_STATS_INIT, in).get()); });
        break;
    case 6: {
        const auto bytes = static_cast<size_t>(in.number());
        void *memory = nullptr;
        if (call("mdlm_context_alloc", [&] { return mdlm_context_alloc(c, bytes, &memory); }) != MDLM_OK) break;
        std::memset(memory, 1, bytes);
        if (call("mdlm_context_copy", [&] { return mdlm_context_copy(c, memory, memory, 0); }) != MDLM_OK)
            found("no bytes cannot be copied");
        if (call("mdlm_context_free", [&] { return mdlm_context_free(c, memory, bytes); }) != MDLM_OK)
            found("memory cannot be given back");
        break;
    }
    case 7: call("mdlm_context_free", [&] { return mdlm_context_free(c, nullptr, 1); }); break;
    case 8: {
        const Buffer a(in.pick(64) + 1), b(a.size());
        call("mdlm_context_copy",
             [&] { return mdlm_context_copy(c, in.pick(9) == 8 ? nullptr : a.get(), b.get(), a.size()); });
        break;
    }
    case 9: {
        const auto observer = [](void *payload, const mdlm_op_event *e) {
            if (payload == nullptr || e->op == nullptr || e->tensor == nullptr || e->end_ns < e->begin_ns) std::abort();
        };
        const bool on = in.chance();
        call("mdlm_context_set_observer", [&] { return mdlm_context_set_observer(c, on ? +observer : nullptr, this); });
        break;
    }
    default:
        if (slot.device != nullptr) slot.device->refuses = in.chance();
    }
}

}  // namespace fuzz

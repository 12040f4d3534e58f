// SPDX-License-Identifier: Apache-2.0
#include <cstdio>

#include "api/objects.hpp"
#include "api/text.hpp"
#include "base/float_environment.hpp"
#include "base/structs.hpp"
#include "block/calibrate.hpp"
#include "comm/timeout.hpp"

using namespace mdlm;

namespace {

void check_desc(const mdlm_context_desc &d) {
    if (d.api_version < 0 || d.api_version > MDLM_API_VERSION)
        fail(MDLM_ERROR_UNSUPPORTED, "desc.api_version = %d: this library knows up to %d", d.api_version,
             MDLM_API_VERSION);
    if (d.device_index != 0) fail(MDLM_ERROR_ARGUMENT, "desc.device_index = %d: expected 0", d.device_index);
    if (d.num_threads < 0 || d.num_threads > 1024)
        fail(MDLM_ERROR_ARGUMENT, "desc.num_threads = %d: expected 0 .. 1024", d.num_threads);
    if (d.threadpool != nullptr) {
        const mdlm_threadpool &p = *d.threadpool;
        if (p.parallel_for == nullptr || p.num_threads < 1 || p.num_threads > 65536)
            fail(MDLM_ERROR_ARGUMENT,
                 "desc.threadpool: expected parallel_for and num_threads in 1 .. 65536, got num_threads = %d",
                 p.num_threads);
        if (p.reserved != 0) fail(MDLM_ERROR_ARGUMENT, "desc.threadpool: reserved = %d: expected 0", p.reserved);
    }
    if (d.matmul < MDLM_MATMUL_AUTO || d.matmul > MDLM_MATMUL_OWN)
        fail(MDLM_ERROR_ARGUMENT, "desc.matmul = %d: expected AUTO (0), ONEDNN (1) or OWN (2)", int(d.matmul));
    if (d.comm_timeout_ms < 0 || d.comm_timeout_ms > longest_timeout_ms)
        fail(MDLM_ERROR_ARGUMENT, "desc.comm_timeout_ms = %lld: expected 0 .. %lld", (long long)d.comm_timeout_ms,
             (long long)longest_timeout_ms);
    if (d.stream != nullptr)
        fail(MDLM_ERROR_ARGUMENT, "desc.stream = %p: expected NULL, this device has no streams", d.stream);
    if (d.reserved != 0) fail(MDLM_ERROR_ARGUMENT, "desc.reserved = %d: expected 0", d.reserved);
    const auto complete = [](const mdlm_allocator *a, const char *name) {
        if (a == nullptr) return;
        if (a->alloc == nullptr) fail(MDLM_ERROR_ARGUMENT, "desc.%s: alloc is NULL", name);
        if (a->free == nullptr) fail(MDLM_ERROR_ARGUMENT, "desc.%s: free is NULL", name);
    };
    complete(d.device_allocator, "device_allocator");
    complete(d.host_allocator, "host_allocator");
}

std::unique_ptr<Device> make_device(const mdlm_context_desc &d) {
    const Traits traits = traits_of(d.device, d.num_threads);  // refuses what is not built
    if (traits.kind == MDLM_DEVICE_REFERENCE) return make_reference_device();
    return make_cpu_device(d.threadpool != nullptr ? make_caller_pool(*d.threadpool) : make_own_pool(d.num_threads),
                           d.matmul);
}

Comms comms_of(const mdlm_context_desc &d) {
    Comms comms{make_self_comm(), nullptr, d.comm_timeout_ms};
    if (d.comm != nullptr) {
        d.comm->comm->made().check("desc.comm");
        comms.comm = d.comm->comm;
    }
    if (d.host_comm == nullptr) return comms;
    if (d.comm == nullptr) fail(MDLM_ERROR_ARGUMENT, "desc.host_comm: expected NULL without desc.comm");
    comms.host = d.host_comm->comm;
    comms.host->made().check("desc.host_comm");
    if (comms.comm->memory_space() == MDLM_MEMORY_SPACE_HOST)
        fail(MDLM_ERROR_ARGUMENT, "desc.host_comm: expected NULL, desc.comm is for host memory");
    if (comms.host->memory_space() != MDLM_MEMORY_SPACE_HOST)
        fail(MDLM_ERROR_ARGUMENT, "desc.host_comm is for device memory: expected one for host memory");
    if (comms.host->rank() != comms.comm->rank() || comms.host->size() != comms.comm->size())
        fail(MDLM_ERROR_ARGUMENT, "desc.host_comm is rank %d of %d: expected %d of %d, as desc.comm",
             comms.host->rank(), comms.host->size(), comms.comm->rank(), comms.comm->size());
    return comms;
}

}  // namespace

mdlm_status mdlm_context_create(const mdlm_context_desc *desc, mdlm_context **out) {
    return guard([&] {
        not_null(out, "out");
        mdlm_context_desc d = desc != nullptr ? copy_in(desc, "desc") : defaults<mdlm_context_desc>();
        const auto copied = [](auto &at, auto &copy, const char *name) {
            if (at != nullptr) copy = copy_in(at, name), at = &copy;
        };
        mdlm_threadpool threadpool;
        mdlm_allocator device_allocator, host_allocator;
        copied(d.threadpool, threadpool, "desc.threadpool");
        copied(d.device_allocator, device_allocator, "desc.device_allocator");
        copied(d.host_allocator, host_allocator, "desc.host_allocator");
        check_desc(d);
        Comms comms = comms_of(d);
        auto gate = std::make_shared<Gate>();
        auto context = std::make_unique<mdlm_context>(std::move(gate), make_device(d), std::move(comms), d);
        context->engine.log = {d.log, d.log_payload};
        if (d.log != nullptr) {
            char line[512];
            context->engine.device->describe(line, sizeof line);
            context->engine.log.write(line);
        }
        *out = context.release();
    });
}

void mdlm_context_destroy(mdlm_context *context) { destroy(context); }

mdlm_status mdlm_context_info(const mdlm_context *context, char *buf, size_t cap, size_t *out_len) {
    return call(context, "context", [&] {
        char line[512];
        context->engine.device->describe(line, sizeof line);
        const Group &group = context->engine.group;
        std::string text = line;
        if (group.size() > 1) text += "; rank " + std::to_string(group.rank()) + " of " + std::to_string(group.size());
        write_text(text, buf, cap, out_len);
    });
}

mdlm_status mdlm_context_last_error(const mdlm_context *context, char *buf, size_t cap, size_t *out_len) {
    return guard([&] {  // also while another call runs
        not_null(context, "context");
        context->gate->made.check("context");
        char line[512];
        {
            const std::lock_guard lock(context->gate->mutex);
            std::memcpy(line, context->gate->last_error, sizeof line);
        }
        write_text(line, buf, cap, out_len);
    });
}

mdlm_status mdlm_context_synchronize(mdlm_context *context) {
    return call(context, "context", [&] { context->engine.device->synchronize(); });
}

mdlm_status mdlm_context_alloc(mdlm_context *context, size_t bytes, void **out) {
    return call(context, "context", [&] {
        not_null(out, "out");
        if (bytes == 0) fail(MDLM_ERROR_ARGUMENT, "bytes = 0: expected at least 1");
        void *at = context->engine.device_memory.alloc(bytes, 256);
        if (at == nullptr) fail(MDLM_ERROR_MEMORY, "%zu bytes could not be allocated", bytes);
        *out = at;
    });
}

mdlm_status mdlm_context_free(mdlm_context *context, void *memory, size_t bytes) {
    return call(context, "context", [&] {
        not_null(memory, "memory");
        if (bytes == 0) fail(MDLM_ERROR_ARGUMENT, "bytes = 0: expected the bytes that were allocated");
        context->engine.device_memory.free(memory, bytes, 256);
    });
}

mdlm_status mdlm_context_copy(mdlm_context *context, void *destination, const void *source, size_t bytes) {
    return call(context, "context", [&] {
        if (bytes == 0) return;
        not_null(destination, "destination");
        not_null(source, "source");
        context->engine.device->copy_any(destination, source, bytes);
    });
}

mdlm_status mdlm_context_calibrate(mdlm_context *context, mdlm_dtype dtype) {
    return call(context, "context", [&] {
        if (dtype < MDLM_DTYPE_F32 || dtype > MDLM_DTYPE_F64)
            fail(MDLM_ERROR_ARGUMENT, "dtype = %d: expected one of MDLM_DTYPE", dtype);
        context->engine.table = calibrate(context->engine, static_cast<DType>(dtype));
    });
}

mdlm_status mdlm_context_get_device_table(const mdlm_context *context, char *buf, size_t cap, size_t *out_len) {
    return call(context, "context", [&] { write_text(to_json(context->engine.table), buf, cap, out_len); });
}

mdlm_status mdlm_context_set_device_table(mdlm_context *context, const char *table) {
    return call(context, "context", [&] {
        not_null(table, "table");
        DeviceTable t = device_table(table);
        // The bytes of a context's plans are those of its device.
        if (t.scratch_bytes != 0)
            fail(MDLM_ERROR_UNSUPPORTED,
                 "device table %.60s: it has a cap of scratch and stands for another device than this context's",
                 t.name.c_str());
        context->engine.table = std::move(t);
    });
}

mdlm_status mdlm_context_set_observer(mdlm_context *context,
                                      void (*observer)(void *payload, const mdlm_op_event *event), void *payload) {
    return call(context, "context", [&] {
        context->engine.observer = {observer, observer != nullptr ? payload : nullptr};
    });
}

mdlm_status mdlm_count_objects(mdlm_object_counts *counts) {
    return guard([&] {
        mdlm_object_counts c = MDLM_OBJECT_COUNTS_INIT;
        c.contexts = Counted<mdlm_context>::alive();
        c.blocks = Counted<mdlm_block>::alive();
        c.tapes = Counted<mdlm_tape>::alive();
        c.plans = Counted<mdlm_plan>::alive();
        c.comms = Counted<Comm>::alive();
        copy_out(counts, c, "counts");
    });
}

mdlm_status mdlm_context_get_stats(const mdlm_context *context, mdlm_context_stats *stats) {
    return call(context, "context", [&] {
        const Engine &e = context->engine;
        mdlm_context_stats s = MDLM_CONTEXT_STATS_INIT;
        s.arena_bytes = static_cast<uint64_t>(e.arena_bytes);
        s.high_water_bytes = static_cast<uint64_t>(e.high_water_bytes);
        s.host_bytes = static_cast<uint64_t>(e.host_bytes);
        s.parameter_bytes = static_cast<uint64_t>(e.parameter_bytes);
        s.gradient_bytes = static_cast<uint64_t>(e.gradient_bytes);
        s.allocations = e.device_memory.calls() + e.host_memory.calls();
        copy_out(stats, s, "stats");
    });
}

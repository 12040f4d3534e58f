// SPDX-License-Identifier: Apache-2.0
#include "api/objects.hpp"
#include "base/sizes.hpp"
#include "base/structs.hpp"
#include "comm/timeout.hpp"

using namespace mdlm;

namespace {

struct Arguments {
    std::shared_ptr<Comm> comm;
    DType dtype;
    int64_t timeout_ms;
};

// Of a collective for the caller's own data. parts: how many times count elements the larger of the buffers has.
Arguments check(mdlm_comm *comm, const void *send, void *recv, int64_t count, mdlm_dtype dtype, mdlm_reduce_op op,
                int64_t timeout_ms) {
    not_null(comm, "comm");
    comm->comm->made().check("comm");
    if (count < 0) fail(MDLM_ERROR_ARGUMENT, "count = %lld: expected at least 0", (long long)count);
    if (dtype < MDLM_DTYPE_F32 || dtype > MDLM_DTYPE_F64)
        fail(MDLM_ERROR_ARGUMENT, "dtype = %d: expected one of MDLM_DTYPE", dtype);
    if (op != MDLM_REDUCE_SUM && op != MDLM_REDUCE_MAX)
        fail(MDLM_ERROR_ARGUMENT, "op = %d: expected one of MDLM_REDUCE", op);
    if (timeout_ms < 0 || timeout_ms > longest_timeout_ms)
        fail(MDLM_ERROR_ARGUMENT, "timeout_ms = %lld: expected 0 .. %lld", (long long)timeout_ms,
             (long long)longest_timeout_ms);
    mul(mul(count, comm->comm->size()), size_of(static_cast<DType>(dtype)));
    if (count > 0)
        for (const auto &[at, name] : {std::pair{send, "send"}, {static_cast<const void *>(recv), "recv"}}) {
            not_null(at, name);
            if (reinterpret_cast<uintptr_t>(at) % static_cast<uintptr_t>(size_of(static_cast<DType>(dtype))) != 0)
                fail(MDLM_ERROR_ARGUMENT, "%s = %p: expected an address aligned to %lld, as an element is", name, at,
                     (long long)size_of(static_cast<DType>(dtype)));
        }
    return {comm->comm, static_cast<DType>(dtype), timeout_ms == 0 ? default_timeout_ms : timeout_ms};
}

}  // namespace

mdlm_status mdlm_comm_create(const mdlm_comm_table *table, mdlm_comm **out) {
    return guard([&] {
        const mdlm_comm_table t = copy_in(table, "table");
        not_null(out, "out");
        if (t.size < 1 || t.size > 65536) fail(MDLM_ERROR_ARGUMENT, "table.size = %d: expected 1 .. 65536", t.size);
        if (t.rank < 0 || t.rank >= t.size)
            fail(MDLM_ERROR_ARGUMENT, "table.rank = %d: expected 0 .. %d", t.rank, t.size - 1);
        if (t.memory_space != MDLM_MEMORY_SPACE_HOST && t.memory_space != MDLM_MEMORY_SPACE_DEVICE)
            fail(MDLM_ERROR_ARGUMENT, "table.memory_space = %d: expected one of MDLM_MEMORY_SPACE", t.memory_space);
        if (t.reserved != 0) fail(MDLM_ERROR_ARGUMENT, "table.reserved = %d: expected 0", t.reserved);
        not_null(reinterpret_cast<const void *>(t.all_reduce), "table.all_reduce");
        not_null(reinterpret_cast<const void *>(t.all_gather), "table.all_gather");
        not_null(reinterpret_cast<const void *>(t.reduce_scatter), "table.reduce_scatter");
        auto handle = std::make_unique<mdlm_comm>(nullptr);  // before there is what a failure would destroy
        handle->comm = make_table_comm(t);
        *out = handle.release();
    });
}

mdlm_status mdlm_comm_create_threads(int32_t size, mdlm_comm **ranks) {
    return guard([&] {
        not_null(ranks, "ranks");
        if (size < 1 || size > 1024) fail(MDLM_ERROR_ARGUMENT, "size = %d: expected 1 .. 1024", size);
        std::vector<std::unique_ptr<mdlm_comm>> handles;
        for (auto &comm : make_thread_comms(size)) handles.push_back(std::make_unique<mdlm_comm>(std::move(comm)));
        for (int32_t r = 0; r < size; ++r) ranks[r] = handles[static_cast<size_t>(r)].release();
    });
}

void mdlm_comm_destroy(mdlm_comm *comm) { delete comm; }

mdlm_status mdlm_comm_abort(mdlm_comm *comm) {
    return guard([&] {
        not_null(comm, "comm");
        comm->comm->made().check("comm");
        comm->comm->abort();
    });
}

int32_t mdlm_comm_cancelled(void) { return asked_in_table(); }

mdlm_status mdlm_comm_rank(const mdlm_comm *comm, int32_t *rank, int32_t *size) {
    return guard([&] {
        not_null(comm, "comm");
        comm->comm->made().check("comm");
        if (rank != nullptr) *rank = comm->comm->rank();
        if (size != nullptr) *size = comm->comm->size();
    });
}

mdlm_status mdlm_comm_all_reduce(mdlm_comm *comm, const void *send, void *recv, int64_t count, mdlm_dtype dtype,
                                 mdlm_reduce_op op, int64_t timeout_ms) {
    return guard([&] {
        const Arguments a = check(comm, send, recv, count, dtype, op, timeout_ms);
        a.comm->all_reduce(send, recv, count, a.dtype, op, a.timeout_ms);
    });
}

mdlm_status mdlm_comm_all_gather(mdlm_comm *comm, const void *send, void *recv, int64_t count, mdlm_dtype dtype,
                                 int64_t timeout_ms) {
    return guard([&] {
        const Arguments a = check(comm, send, recv, count, dtype, MDLM_REDUCE_SUM, timeout_ms);
        a.comm->all_gather(send, recv, count, a.dtype, a.timeout_ms);
    });
}

mdlm_status mdlm_comm_reduce_scatter(mdlm_comm *comm, const void *send, void *recv, int64_t count, mdlm_dtype dtype,
                                     mdlm_reduce_op op, int64_t timeout_ms) {
    return guard([&] {
        const Arguments a = check(comm, send, recv, count, dtype, op, timeout_ms);
        a.comm->reduce_scatter(send, recv, count, a.dtype, op, a.timeout_ms);
    });
}

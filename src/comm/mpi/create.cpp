// SPDX-License-Identifier: Apache-2.0
// The C functions: a link as a table of functions for libmdlm. This library is a client of libmdlm's C ABI and nothing
// else of it.
#include <mdlm/mpi.h>

#include <new>

#include "comm/mpi/collectives.hpp"
#include "comm/mpi/registry.hpp"

namespace mdlm {
namespace {

Collectives &of(void *payload) { return *static_cast<Collectives *>(payload); }

mdlm_status all_reduce(void *payload, const void *send, void *recv, int64_t count, mdlm_dtype dtype, mdlm_reduce_op op,
                       int64_t timeout_ms, void *) {
    return of(payload).all_reduce(send, recv, count, static_cast<DType>(dtype), op, timeout_ms);
}
mdlm_status all_gather(void *payload, const void *send, void *recv, int64_t count, mdlm_dtype dtype, int64_t timeout_ms,
                       void *) {
    return of(payload).all_gather(send, recv, count, static_cast<DType>(dtype), timeout_ms);
}
mdlm_status reduce_scatter(void *payload, const void *send, void *recv, int64_t count, mdlm_dtype dtype,
                           mdlm_reduce_op op, int64_t timeout_ms, void *) {
    return of(payload).reduce_scatter(send, recv, count, static_cast<DType>(dtype), op, timeout_ms);
}
void abort(void *payload) { of(payload).link().abort(); }
void destroy(void *payload) {
    Link *const link = &of(payload).link();
    delete static_cast<Collectives *>(payload);
    retire(link);
}

// MPI's errors come back as codes while it lives; what the caller set comes back after.
class ErrorsReturn {
public:
    explicit ErrorsReturn(MPI_Comm comm) : comm_(comm) {
        check(MPI_Comm_get_errhandler(comm, &before_), "MPI_Comm_get_errhandler");
        check(MPI_Comm_set_errhandler(comm, MPI_ERRORS_RETURN), "MPI_Comm_set_errhandler");
    }
    ~ErrorsReturn() {
        MPI_Comm_set_errhandler(comm_, before_);
        MPI_Errhandler_free(&before_);
    }
    ErrorsReturn(const ErrorsReturn &) = delete;

private:
    MPI_Comm comm_;
    MPI_Errhandler before_;
};

MPI_Comm duplicate(MPI_Comm comm) {
    const ErrorsReturn guard(comm);
    int between = 0;
    check(MPI_Comm_test_inter(comm, &between), "MPI_Comm_test_inter");
    if (between) fail(MDLM_ERROR_ARGUMENT, "comm is an intercommunicator: expected an intracommunicator");
    MPI_Comm dup = MPI_COMM_NULL;
    check(MPI_Comm_dup(comm, &dup), "MPI_Comm_dup");
    const int code = MPI_Comm_set_errhandler(dup, MPI_ERRORS_RETURN);
    if (code != MPI_SUCCESS) MPI_Comm_free(&dup);
    check(code, "MPI_Comm_set_errhandler");
    return dup;
}

// All ranks of dup, or none, have what they need. ours is what went wrong here, or MDLM_OK.
void agree(MPI_Comm dup, mdlm_status ours) {
    int rank = 0, size = 0;
    check(MPI_Comm_rank(dup, &rank), "MPI_Comm_rank");
    check(MPI_Comm_size(dup, &size), "MPI_Comm_size");
    // Two numbers of this rank and those of the rank that differs most, without memory for all.
    struct {
        int value, rank;
    } mine[3] = {{ours, rank}, {protocol, rank}, {-protocol, rank}}, worst[3];
    check(MPI_Allreduce(mine, worst, 3, MPI_2INT, MPI_MAXLOC, dup), "MPI_Allreduce");
    if (ours != MDLM_OK) throw std::bad_alloc();
    if (worst[0].value != MDLM_OK)
        fail(MDLM_ERROR_COMM, "rank %d could not make its communicator: %s", worst[0].rank,
             mdlm_status_name(worst[0].value));
    if (worst[1].value != -worst[2].value)
        fail(MDLM_ERROR_COMM, "ranks %d and %d have versions of libmdlm-mpi that do not understand each other",
             worst[1].rank, worst[2].rank);
}

void create(MPI_Comm comm, mdlm_comm **out) {
    if (out == nullptr) fail(MDLM_ERROR_ARGUMENT, "out is NULL");
    if (!mpi_is_running())
        fail(MDLM_ERROR_STATE, "MPI is not running: expected a call after MPI_Init and before MPI_Finalize");
    if (comm == MPI_COMM_NULL || comm == MPI_Comm{})
        fail(MDLM_ERROR_ARGUMENT, "comm is MPI_COMM_NULL: expected a communicator");
    refuse_child();
    int level = MPI_THREAD_SINGLE, is_main = 0;
    check(MPI_Query_thread(&level), "MPI_Query_thread");
    check(MPI_Is_thread_main(&is_main), "MPI_Is_thread_main");
    if (level < MPI_THREAD_SERIALIZED && !is_main)
        fail(MDLM_ERROR_STATE,
             "this is not the thread that initialised MPI: expected that one, or MPI_THREAD_SERIALIZED");
    watch_finalize();
    sweep();

    MPI_Comm dup = duplicate(comm);
    std::unique_ptr<Collectives> collectives;
    Link *enrolled = nullptr;
    try {
        mdlm_status status = MDLM_OK;
        try {
            enrolled = enroll(std::make_unique<Link>(dup));
            collectives = std::make_unique<Collectives>(*enrolled);
        } catch (const std::bad_alloc &) {
            status = MDLM_ERROR_MEMORY;
        }
        agree(dup, status);
        enrolled->start();
    } catch (...) {
        if (enrolled != nullptr) retire(enrolled);
        else MPI_Comm_free(&dup);
        throw;
    }

    mdlm_comm_table table = MDLM_COMM_TABLE_INIT;
    table.rank = enrolled->rank(), table.size = enrolled->size();
    table.all_reduce = all_reduce, table.all_gather = all_gather, table.reduce_scatter = reduce_scatter;
    table.abort = abort, table.destroy = destroy, table.payload = collectives.get();
    const mdlm_status status = mdlm_comm_create(&table, out);
    if (status != MDLM_OK) {
        retire(enrolled);
        fail(status, "%s", mdlm_last_error());
    }
    collectives.release();
}

template <class F>
mdlm_status guard(F &&f) noexcept {
    mdlm_status status = MDLM_ERROR_INTERNAL;
    try {
        f();
        return MDLM_OK;
    } catch (const Error &e) {
        status = e.status();
        mdlm_set_last_error(e.what());
    } catch (const std::bad_alloc &) {
        status = MDLM_ERROR_MEMORY;
        mdlm_set_last_error("out of host memory");
    } catch (...) {
        mdlm_set_last_error("an exception of unknown type");
    }
    return status;
}

}  // namespace
}  // namespace mdlm

mdlm_status mdlm_comm_create_mpi(MPI_Comm comm, mdlm_comm **out) {
    return mdlm::guard([&] { mdlm::create(comm, out); });
}

mdlm_status mdlm_comm_create_mpi_f(int32_t comm, mdlm_comm **out) {
    return mdlm::guard([&] {
        if (!mdlm::mpi_is_running())
            mdlm::fail(MDLM_ERROR_STATE, "MPI is not running: expected a call after MPI_Init and before MPI_Finalize");
        mdlm::create(MPI_Comm_f2c(comm), out);
    });
}

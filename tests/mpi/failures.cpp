// SPDX-License-Identifier: Apache-2.0
// What goes wrong on one rank is said on all, soon, and leaves nothing behind that the next communicator could meet.
#include <thread>

#include "own_comm.hpp"
#include "support/cancel.hpp"

namespace mpi_test {
namespace {

// The last rank is late, and finds the group aborted.
std::string timeout(int rank, int size, int64_t count) {
    Own own;
    const std::string text = "waited 200 ms for rank " + std::to_string(size - 1) + ", which did not come";
    if (rank == size - 1) sleep_ms(1500);
    const auto begin = Clock::now();
    std::string wrong = expect_comm(sum(own.comm, count, rank == size - 1 ? long_ms : 200), text, begin);
    // Or by another rank that began before.
    const bool by_itself =
        std::string(mdlm_last_error()).find("rank " + std::to_string(rank) + " waited") != std::string::npos;
    if (wrong.empty() && by_itself && ms_since(begin) < 200)
        wrong = "gave up after " + std::to_string(ms_since(begin)) + " ms, expected 200";
    // And again, without waiting.
    if (wrong.empty()) wrong = expect_comm(sum(own.comm, count, long_ms), "aborted", Clock::now(), 1000);
    return wrong;
}

std::string abort_elsewhere(int rank, int, int64_t count) {
    Own own;
    const auto begin = Clock::now();
    if (rank == 0) {
        OK(sum(own.comm, 1, long_ms));
        sleep_ms(100);
        OK(mdlm_comm_abort(own.comm));
        OK(mdlm_comm_abort(own.comm));
        return expect_comm(sum(own.comm, count, long_ms), "aborted", begin);
    }
    OK(sum(own.comm, 1, long_ms));
    return expect_comm(sum(own.comm, count, long_ms), "rank 0 aborted the group", begin);
}

// On the rank that waits, by another of its threads, which under MPI_THREAD_FUNNELED may not call MPI.
std::string abort_by_thread(int rank, int, int64_t) {
    Own own;
    const auto begin = Clock::now();
    OK(sum(own.comm, 100, long_ms));
    if (rank != 0) {
        sleep_ms(400);
        return expect_comm(sum(own.comm, 100, long_ms), "rank 0 aborted the group", begin);
    }
    std::thread other([&] {
        sleep_ms(100);
        mdlm_comm_abort(own.comm);
    });
    const std::string wrong = expect_comm(sum(own.comm, 100, long_ms), "rank 0 aborted the group", begin);
    other.join();
    return wrong;
}

std::string leave(int rank, int, int64_t count) {
    Own own;
    OK(sum(own.comm, count, long_ms));
    const auto begin = Clock::now();
    if (rank == 1) {
        own.destroy();
        sleep_ms(300);
        return "";
    }
    const std::string wrong = expect_comm(sum(own.comm, count, long_ms), "rank 1 has left the group", begin);
    return wrong.empty() ? expect_comm(sum(own.comm, count, long_ms), "aborted", begin) : wrong;
}

// The usual end: every rank destroys after its last collective, whenever it comes there. And communicators do not run
// out.
std::string ends(int rank, int size, int64_t) {
    for (int i = 0; i < 120; ++i) {
        Own own;
        OK(sum(own.comm, i % 3 == 0 ? 100000 : i + 1, long_ms));
        if (i % 8 == 0 && i / 8 % size == rank) sleep_ms(2);
        OK(sum(own.comm, i % 2 == 0 ? 1 : 5000, long_ms));
    }
    return "";
}

// Rank 1's first call is another one. Both calls are named on every rank; the next communicator works.
std::string mismatch(int rank, int, int64_t) {
    std::vector<float> send(1 << 20, 1), recv(1 << 22);
    const auto other_count = [&](mdlm_comm *c) {
        return mdlm_comm_all_reduce(c, send.data(), recv.data(), rank == 1 ? 300000 : 7, MDLM_DTYPE_F32,
                                    MDLM_REDUCE_SUM, long_ms);
    };
    const auto other_kind = [&](mdlm_comm *c) {
        return rank == 1 ? mdlm_comm_reduce_scatter(c, send.data(), recv.data(), 1000, MDLM_DTYPE_F32, MDLM_REDUCE_SUM,
                                                    long_ms)
                         : mdlm_comm_all_gather(c, send.data(), recv.data(), 100000, MDLM_DTYPE_F32, long_ms);
    };
    const auto other_dtype = [&](mdlm_comm *c) {
        return mdlm_comm_all_gather(c, send.data(), recv.data(), 100000, rank == 1 ? MDLM_DTYPE_F64 : MDLM_DTYPE_BF16,
                                    long_ms);
    };
    const auto other_op = [&](mdlm_comm *c) {
        return mdlm_comm_reduce_scatter(c, send.data(), recv.data(), 0, MDLM_DTYPE_F16,
                                        rank == 1 ? MDLM_REDUCE_MAX : MDLM_REDUCE_SUM, long_ms);
    };
    const std::pair<std::function<mdlm_status(mdlm_comm *)>, const char *> calls[] = {
        {other_count, "all_reduce SUM of 7 f32 and all_reduce SUM of 300000 f32"},
        {other_kind, "all_gather of 100000 f32 and reduce_scatter SUM of 1000 f32"},
        {other_dtype, "all_gather of 100000 bf16 and all_gather of 100000 f64"},
        {other_op, "reduce_scatter SUM of 0 f16 and reduce_scatter MAX of 0 f16"},
    };
    for (int repeat = 0; repeat < 5; ++repeat)
        for (const auto &[call, text] : calls) {
            Own own;
            const std::string wrong = expect_comm(
                call(own.comm), std::string("ranks 0 and 1 do not make the same call: ") + text, Clock::now());
            if (!wrong.empty()) return wrong;
        }
    Own own;
    OK(sum(own.comm, 1000, long_ms));
    return "";
}

std::string callback_error(int rank, int size, int64_t) {
    Own own;
    Step step(own.comm, {{"recompute_granularity", "full"}});
    OK(step.forward());
    const auto begin = Clock::now();
    const auto refuse = [](void *, int64_t layer) -> mdlm_status {
        if (layer != 1) return MDLM_OK;
        mdlm_set_last_error("no room for gradients");
        return MDLM_ERROR_MEMORY;
    };
    const bool mine = rank == size - 1;
    const mdlm_status status = step.backward(mine ? +refuse : nullptr);
    if (mine) return expect_status(status, MDLM_ERROR_CALLBACK, "no room for gradients");
    std::string wrong = expect_comm(status, "rank " + std::to_string(size - 1) + " aborted the group", begin);
    if (wrong.empty()) wrong = expect_comm(step.forward(), "aborted", begin);
    return wrong;
}

std::string other_shape(int rank, int, int64_t) {
    Own own;
    Step step(own.comm, {});
    if (rank == 1) step.batch.seq_length = 16;
    const std::string wrong =
        expect_status(step.forward(), MDLM_ERROR_SHAPE, "seq_length differs between ranks: 24 on rank 0, 16 on rank 1");
    step.batch.seq_length = 24;
    if (!wrong.empty()) return wrong;
    OK(step.forward());
    OK(step.backward());
    return "";
}

// Rank 0 is cancelled while it waits for the others, which come when it has gone, or in the midst of a step, at an ask
// that a wait makes or that comes between two ops.
std::string cancelled_wait(int rank, int size, int64_t) {
    mdlm_test::Canceller canceller;
    Own own;
    Step step(own.comm, {}, mdlm_test::Canceller::ask, &canceller);
    OK(step.forward());
    OK(step.backward());
    const auto begin = Clock::now();
    if (rank != 0) {
        sleep_ms(1000);
        return expect_comm(step.forward(), size == 2 ? "rank 0: it was cancelled" : "cancelled", begin);
    }
    canceller.reset();
    std::thread later([&] {
        sleep_ms(100);
        canceller.flag = true;
    });
    const mdlm_status status = step.forward();
    const int64_t ms = canceller.ms_since_yes(), asks = canceller.asks;
    std::string wrong = expect_status(status, MDLM_ERROR_CANCELLED, "cancelled: mdlm_block_forward, in ");
    later.join();
    if (wrong.empty() && ms > 900) wrong = "took " + std::to_string(ms) + " ms";
    if (wrong.empty() && (asks < 2 || asks > 100)) wrong = "asked " + std::to_string(asks) + " times";
    canceller.reset();
    if (wrong.empty()) wrong = expect_comm(step.forward(), "aborted", begin);
    return wrong;
}

std::string cancelled_step(int rank, int, int64_t) {
    bool over = false;
    for (int64_t k = 1; !over; k += 7) {
        mdlm_test::Canceller canceller;
        Own own;
        Step step(own.comm, {}, mdlm_test::Canceller::ask, &canceller);
        const auto begin = Clock::now();
        if (rank == 0) canceller.reset(k);
        mdlm_status status = step.forward();
        if (status == MDLM_OK) status = step.backward();
        over = status == MDLM_OK;
        std::string wrong;
        if (!over && rank == 0) wrong = expect_status(status, MDLM_ERROR_CANCELLED, "cancelled: mdlm_block_");
        else if (!over) wrong = expect_comm(status, "rank 0", begin);
        if (wrong.empty() && k == 1) {  // nothing had run: all go on
            canceller.reset();
            OK(step.forward());
            OK(step.backward());
        }
        int all = over;  // who had ended its step when rank 0 was cancelled has had no error yet
        MPI_Allreduce(MPI_IN_PLACE, &all, 1, MPI_INT, MPI_MIN, MPI_COMM_WORLD);
        over = all != 0;
        if (!wrong.empty()) return wrong;
    }
    return "";
}

}  // namespace

std::vector<Case> failure_cases() {
    return {case_of("failures: a rank that does not come is named by all, small messages", timeout, 100),
            case_of("failures: a rank that does not come is named by all, large messages", timeout, 3000000),
            case_of("failures: another rank aborts, small messages", abort_elsewhere, 100),
            case_of("failures: another rank aborts, large messages", abort_elsewhere, 3000000),
            case_of("failures: another thread of a waiting rank aborts", abort_by_thread),
            case_of("failures: a rank destroys its communicator, small messages", leave, 100),
            case_of("failures: a rank destroys its communicator, large messages", leave, 3000000),
            case_of("failures: all ranks destroy after their last collective", ends),
            case_of("failures: other calls are named on all ranks", mismatch),
            case_of("failures: a callback's error during backward", callback_error),
            case_of("failures: a rank that is cancelled while it waits", cancelled_wait),
            case_of("failures: a rank that is cancelled in a step", cancelled_step),
            case_of("failures: another shape is named on all ranks, and all go on", other_shape)};
}

}  // namespace mpi_test

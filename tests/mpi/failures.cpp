// SPDX-License-Identifier: Apache-2.0
// What goes wrong on one rank is said on all, soon, and leaves nothing behind that the next communicator could meet.
#include <mdlm/mpi.h>

#include <chrono>
#include <thread>

#include "ranks.hpp"
#include "step.hpp"
#include "support/cancel.hpp"

namespace mpi_test {
namespace {

using Clock = std::chrono::steady_clock;
constexpr int64_t long_ms = 60000;  // a timeout that must not be what ends a wait
constexpr int64_t soon_ms = 10000;  // on a machine that does much else: far below long_ms

void sleep_ms(int64_t ms) { std::this_thread::sleep_for(std::chrono::milliseconds(ms)); }
int64_t ms_since(Clock::time_point begin) {
    return std::chrono::duration_cast<std::chrono::milliseconds>(Clock::now() - begin).count();
}

// A communicator that the case destroys when it likes.
struct Own {
    explicit Own(MPI_Comm world = MPI_COMM_WORLD) { OK(mdlm_comm_create_mpi(world, &comm)); }
    ~Own() { mdlm_comm_destroy(comm); }
    Own(const Own &) = delete;
    void destroy() { mdlm_comm_destroy(comm), comm = nullptr; }
    mdlm_comm *comm = nullptr;
};

mdlm_status sum(mdlm_comm *comm, int64_t count, int64_t timeout_ms) {
    std::vector<float> values(static_cast<size_t>(count), 1);
    return mdlm_comm_all_reduce(comm, values.data(), values.data(), count, MDLM_DTYPE_F32, MDLM_REDUCE_SUM, timeout_ms);
}

// "" when the status is COMM, soon enough and with text in its line; call it right after.
std::string expect_comm(mdlm_status status, const std::string &text, Clock::time_point begin,
                        int64_t most_ms = soon_ms) {
    const std::string line = mdlm_last_error();
    if (status != MDLM_ERROR_COMM)
        return std::string("status ") + mdlm_status_name(status) + " (" + line + "), expected an error with: " + text;
    if (line.find(text) == std::string::npos) return "the line is: " + line + "; expected in it: " + text;
    if (ms_since(begin) > most_ms) return "it took " + std::to_string(ms_since(begin)) + " ms to say: " + line;
    return "";
}

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

std::string expect_status(mdlm_status status, mdlm_status expected, const std::string &text) {
    const std::string line = mdlm_last_error();
    if (status == expected && line.find(text) != std::string::npos) return "";
    return std::string(mdlm_status_name(status)) + ": " + line + "; expected " + mdlm_status_name(expected) +
           " with: " + text;
}

std::string arguments(int rank, int size, int64_t) {
    mdlm_comm *comm = nullptr;
    std::string wrong =
        expect_status(mdlm_comm_create_mpi(MPI_COMM_WORLD, nullptr), MDLM_ERROR_ARGUMENT, "out is NULL");
    if (wrong.empty())
        wrong = expect_status(mdlm_comm_create_mpi(MPI_COMM_NULL, &comm), MDLM_ERROR_ARGUMENT, "MPI_COMM_NULL");
    if (wrong.empty())
        wrong = expect_status(mdlm_comm_create_mpi_f(MPI_Comm_c2f(MPI_COMM_NULL), &comm), MDLM_ERROR_ARGUMENT,
                              "MPI_COMM_NULL");
    if (wrong.empty() && size > 1) {
        MPI_Comm half = MPI_COMM_NULL, inter = MPI_COMM_NULL;
        MPI_Comm_split(MPI_COMM_WORLD, rank == 0, rank, &half);
        MPI_Intercomm_create(half, 0, MPI_COMM_WORLD, rank == 0 ? 1 : 0, 5, &inter);
        wrong = expect_status(mdlm_comm_create_mpi(inter, &comm), MDLM_ERROR_ARGUMENT, "intercommunicator");
        MPI_Comm_free(&inter);
        MPI_Comm_free(&half);
    }
    if (wrong.empty() && comm != nullptr) wrong = "out was written by a call that failed";
    if (!wrong.empty()) return wrong;
    std::thread([&] {
        wrong = expect_status(mdlm_comm_create_mpi(MPI_COMM_WORLD, &comm), MDLM_ERROR_STATE, "thread");
    }).join();
    if (!wrong.empty()) return wrong;

    // From Fortran's handle, of a communicator whose ranks are the other way around and that is freed at once.
    MPI_Comm reversed = MPI_COMM_NULL;
    MPI_Comm_split(MPI_COMM_WORLD, 0, -rank, &reversed);
    OK(mdlm_comm_create_mpi_f(MPI_Comm_c2f(reversed), &comm));
    MPI_Comm_free(&reversed);
    int32_t r = -1, n = -1;
    OK(mdlm_comm_rank(comm, &r, &n));
    if (r != size - 1 - rank || n != size) wrong = "rank " + std::to_string(r) + " of " + std::to_string(n);
    else OK(sum(comm, 1000, long_ms));
    mdlm_comm_destroy(comm);
    return wrong;
}

// Groups side by side, messages of the program's own on the same communicator, and MPI_COMM_SELF.
std::string side_by_side(int rank, int size, int64_t) {
    MPI_Comm half = MPI_COMM_NULL;
    MPI_Comm_split(MPI_COMM_WORLD, rank % 2, rank, &half);
    const Own world, again, part(half), self(MPI_COMM_SELF);
    MPI_Comm_free(&half);
    int token = -1;
    const int left = (rank + size - 1) % size, right = (rank + 1) % size;
    MPI_Request request = MPI_REQUEST_NULL;
    MPI_Irecv(&token, 1, MPI_INT, MPI_ANY_SOURCE, MPI_ANY_TAG, MPI_COMM_WORLD, &request);
    std::string wrong;
    const auto expect_sum = [&](const Own &own, float expected) {
        std::vector<float> values(50000, 1);
        OK(mdlm_comm_all_reduce(own.comm, values.data(), values.data(), 50000, MDLM_DTYPE_F32, MDLM_REDUCE_SUM,
                                long_ms));
        for (const float v : values)
            if (v != expected && wrong.empty())
                wrong = "a sum of " + std::to_string(v) + ", expected " + std::to_string(expected);
    };
    for (int i = 0; i < 10; ++i) {
        expect_sum(world, static_cast<float>(size));
        expect_sum(part, static_cast<float>((size + 1 - rank % 2) / 2));
        expect_sum(self, 1);
        expect_sum(again, static_cast<float>(size));
    }
    MPI_Send(&rank, 1, MPI_INT, right, 1, MPI_COMM_WORLD);
    MPI_Wait(&request, MPI_STATUS_IGNORE);
    return token == left ? wrong : "a message of the program's was lost";
}

std::string wrong_thread(int rank, int, int64_t) {
    Own own;
    std::string wrong;
    const auto begin = Clock::now();
    if (rank != 1) {
        wrong = expect_comm(sum(own.comm, 10, long_ms), "rank 1", begin);
    } else {
        std::thread([&] {
            wrong = expect_comm(sum(own.comm, 10, long_ms), "not the thread that initialised MPI", begin);
            own.destroy();  // as a finalizer does, which the others hear of when this rank's main thread comes by
        }).join();
        const Own another(MPI_COMM_SELF);
    }
    return wrong;
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

Case make(const char *name, std::string (*f)(int rank, int size, int64_t count), int64_t count = 0) {
    return {std::string("failures: ") + name, 0,
            [f, count](mdlm_comm *, int rank, int size) { return f(rank, size, count); }};
}

}  // namespace

std::vector<Case> failure_cases() {
    return {make("a rank that does not come is named by all, small messages", timeout, 100),
            make("a rank that does not come is named by all, large messages", timeout, 3000000),
            make("another rank aborts, small messages", abort_elsewhere, 100),
            make("another rank aborts, large messages", abort_elsewhere, 3000000),
            make("another thread of a waiting rank aborts", abort_by_thread),
            make("a rank destroys its communicator, small messages", leave, 100),
            make("a rank destroys its communicator, large messages", leave, 3000000),
            make("all ranks destroy after their last collective", ends),
            make("other calls are named on all ranks", mismatch),
            make("arguments of create", arguments),
            make("groups side by side", side_by_side),
            make("a thread that may not call MPI", wrong_thread),
            make("a callback's error during backward", callback_error),
            make("a rank that is cancelled while it waits", cancelled_wait),
            make("a rank that is cancelled in a step", cancelled_step),
            make("another shape is named on all ranks, and all go on", other_shape)};
}

}  // namespace mpi_test

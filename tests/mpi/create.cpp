// SPDX-License-Identifier: Apache-2.0
// Making communicators from MPI: what is refused, from which threads, and several side by side.
#include <memory>
#include <thread>

#include "own_comm.hpp"
#include "support/child.hpp"

namespace mpi_test {
namespace {

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

// In a child that fork made, communicators, contexts on them and MPI itself are the parent's: refused, and destroyed
// without a word to anybody.
std::string in_a_child(int, int, int64_t) {
    Own own;
    auto step = std::make_unique<Step>(own.comm, Settings{});
    OK(step->forward());
    OK(step->backward());
    OK(step->forward());
    for (const bool context_first : {true, false}) {
        const std::string wrong = mdlm_test::in_child([&]() -> std::string {
            mdlm_comm *more = nullptr;
            int32_t rank = 0;
            std::string said = expect_status(step->backward(), MDLM_ERROR_STATE, "fork");
            if (said.empty()) said = expect_status(sum(own.comm, 10, long_ms), MDLM_ERROR_STATE, "fork");
            if (said.empty()) said = expect_status(mdlm_comm_abort(own.comm), MDLM_ERROR_STATE, "fork");
            if (said.empty()) said = expect_status(mdlm_comm_rank(own.comm, &rank, nullptr), MDLM_ERROR_STATE, "fork");
            for (MPI_Comm world : {MPI_COMM_WORLD, MPI_COMM_SELF})
                if (said.empty())
                    said = expect_status(mdlm_comm_create_mpi(world, &more), MDLM_ERROR_STATE, "MPI: process ");
            if (said.empty() && more != nullptr) said = "out was written by a call that failed";
            if (context_first) step.reset();
            own.destroy();
            step.reset();
            return said;
        });
        if (!wrong.empty()) return "in the child: " + wrong;
    }
    OK(step->backward());  // the group has noticed nothing
    OK(step->forward());
    OK(sum(own.comm, 100000, long_ms));
    return "";
}

}  // namespace

std::vector<Case> create_cases() {
    return {case_of("create: arguments", arguments), case_of("create: groups side by side", side_by_side),
            case_of("create: a thread that may not call MPI", wrong_thread),
            case_of("create: a child that fork made", in_a_child)};
}

}  // namespace mpi_test

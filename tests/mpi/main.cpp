// SPDX-License-Identifier: Apache-2.0
// The ranks that run.py starts: cases, or one of the ends of a process by its name.
#include <mdlm/mpi.h>

#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <stdexcept>
#include <string>

#include "ranks.hpp"
#include "step.hpp"

namespace mpi_test {
namespace {

void expect(mdlm_status seen, mdlm_status expected, const char *text) {
    if (seen == expected && std::strstr(mdlm_last_error(), text) != nullptr) return;
    throw std::runtime_error(std::string(mdlm_status_name(seen)) + ": " + mdlm_last_error() + "; expected " +
                             mdlm_status_name(expected) + ": " + text);
}

mdlm_status sum(mdlm_comm *comm) {
    float values[100] = {};
    return mdlm_comm_all_reduce(comm, values, values, 100, MDLM_DTYPE_F32, MDLM_REDUCE_SUM, 20000);
}

int begin_mpi(int argc, char **argv) {
    int rank = 0;
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    return rank;
}

// Outside of MPI_Init ... MPI_Finalize nothing of MPI is called, and what is left then does no harm.
void states(int argc, char **argv) {
    mdlm_comm *comm = nullptr, *late = nullptr;
    expect(mdlm_comm_create_mpi(MPI_COMM_WORLD, &comm), MDLM_ERROR_STATE, "after MPI_Init");
    expect(mdlm_comm_create_mpi_f(0, &comm), MDLM_ERROR_STATE, "after MPI_Init");
    const int rank = begin_mpi(argc, argv);
    OK(mdlm_comm_create_mpi(MPI_COMM_WORLD, &comm));
    OK(mdlm_comm_create_mpi(MPI_COMM_WORLD, &late));
    OK(sum(comm));
    OK(sum(late));
    if (rank == 1) mdlm_comm_destroy(comm);
    MPI_Finalize();
    if (rank != 1) mdlm_comm_destroy(comm);
    expect(sum(late), MDLM_ERROR_COMM, "MPI was finalized");
    expect(mdlm_comm_create_mpi(MPI_COMM_WORLD, &comm), MDLM_ERROR_STATE, "before MPI_Finalize");
    OK(mdlm_comm_abort(late));
    mdlm_comm_destroy(late);
    if (rank == 0) std::printf("mpi-case: states: holds\n");
}

// The last rank ends the process in the middle of a step; the others wait for it.
void die(int argc, char **argv, const char *how) {
    int size = 0;
    const int rank = begin_mpi(argc, argv);
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    mdlm_comm *comm = nullptr;
    OK(mdlm_comm_create_mpi(MPI_COMM_WORLD, &comm));
    for (int i = 0; i < 20; ++i) OK(sum(comm));
    if (rank == size - 1) {
        if (std::strcmp(how, "exit") == 0) std::exit(0);
        std::raise(SIGKILL);
    }
    const mdlm_status status = sum(comm);
    std::printf("mpi-case: rank %d lived on with %s: %s\n", rank, mdlm_status_name(status), mdlm_last_error());
    std::fflush(stdout);
    mdlm_comm_destroy(comm);
    MPI_Finalize();
}

}  // namespace
}  // namespace mpi_test

int main(int argc, char **argv) {
    using namespace mpi_test;
    const std::string what = argc == 2 ? argv[1] : "";
    try {
        if (what == "states") return states(argc, argv), 0;
        if (what == "exit" || what == "kill") return die(argc, argv, argv[1]), 0;
    } catch (const std::exception &e) {
        std::fprintf(stderr, "mpi-case: %s: fails: %s\n", argv[1], e.what());
        return 1;
    }
    std::vector<Case> cases = conformance_cases();
    for (const auto &more : {block_cases(), create_cases(), failure_cases()})
        cases.insert(cases.end(), more.begin(), more.end());
    return run_cases(argc, argv, cases);
}

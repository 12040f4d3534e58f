// SPDX-License-Identifier: Apache-2.0
#include "ranks.hpp"

#include <mdlm/mpi.h>

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <exception>

namespace mpi_test {
namespace {

std::string run_one(const Case &c, int rank, int size) {
    mdlm_comm *comm = nullptr;
    if (mdlm_comm_create_mpi(MPI_COMM_WORLD, &comm) != MDLM_OK) return mdlm_last_error();
    std::string wrong;
    try {
        wrong = c.run(comm, rank, size);
    } catch (const std::exception &e) {
        wrong = e.what();
    }
    if (!wrong.empty()) mdlm_comm_abort(comm);
    mdlm_comm_destroy(comm);
    return wrong;
}

bool is_wanted(const Case &c, int size, const std::vector<std::string> &filters) {
    if (c.size != 0 && c.size != size) return false;
    for (const std::string &f : filters)
        if (c.name.compare(0, f.size(), f) == 0) return true;
    return filters.empty();
}

// The first rank's complaint that no other rank's failure explains, on rank 0.
std::string collect(const std::string &wrong, int rank, int size) {
    constexpr size_t room = 1024;
    std::vector<char> mine(room), all(room * static_cast<size_t>(size));
    std::snprintf(mine.data(), room, "%s", wrong.c_str());
    MPI_Gather(mine.data(), room, MPI_CHAR, all.data(), room, MPI_CHAR, 0, MPI_COMM_WORLD);
    if (rank != 0) return "";
    std::string first;
    for (int r = 0; r < size; ++r) {
        const std::string text = all.data() + static_cast<size_t>(r) * room;
        if (text.empty()) continue;
        const std::string line = "rank " + std::to_string(r) + ": " + text;
        if (first.empty()) first = line;
        if (text.find("MDLM_ERROR_COMM") == std::string::npos) return line;
    }
    return first;
}

}  // namespace

int run_cases(int argc, char **argv, const std::vector<Case> &cases) {
    std::vector<std::string> filters;
    bool list = false;
    int listed = 0;
    for (int i = 1; i < argc; ++i) {
        if (std::strcmp(argv[i], "--list") == 0) list = true;
        else if (std::strcmp(argv[i], "--size") == 0 && i + 1 < argc) listed = std::atoi(argv[++i]);
        else filters.push_back(argv[i]);
    }
    if (list) {
        for (const Case &c : cases)
            if (is_wanted(c, listed, filters)) std::printf("%s\n", c.name.c_str());
        return 0;
    }
    int level = 0, rank = 0, size = 0;
    MPI_Init_thread(&argc, &argv, MPI_THREAD_FUNNELED, &level);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    int failed = 0;
    for (const Case &c : cases) {
        if (!is_wanted(c, size, filters)) continue;
        const std::string wrong = collect(run_one(c, rank, size), rank, size);
        if (rank == 0)
            std::printf(wrong.empty() ? "mpi-case: %s: holds%s\n" : "mpi-case: %s: fails: %s\n", c.name.c_str(),
                        wrong.c_str());
        std::fflush(stdout);
        if (!wrong.empty()) failed = 1;
    }
    MPI_Finalize();
    return failed;
}

}  // namespace mpi_test

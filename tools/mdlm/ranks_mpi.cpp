// SPDX-License-Identifier: Apache-2.0
// Processes that mpirun or another launcher started.
#include <array>
#include <cstdio>
#include <cstring>

#include "../text.hpp"
#include "mdlm/mpi.h"
#include "mpi.hpp"

namespace mdlm::tools::mpi {

std::string about() {
    char text[MPI_MAX_LIBRARY_VERSION_STRING];
    int length = 0;
    if (MPI_Get_library_version(text, &length) != MPI_SUCCESS) return "unknown version";
    const std::string whole(text, static_cast<size_t>(length));  // "Open MPI v4.1.4, package: ..., ident: ..."
    return one_line(whole.substr(0, whole.find(',')));
}

void begin(const Launched &expected) {
    int level = 0, size = 0, rank = 0;
    // The library's pool has threads; this one alone calls MPI.
    if (MPI_Init_thread(nullptr, nullptr, MPI_THREAD_FUNNELED, &level) != MPI_SUCCESS || level < MPI_THREAD_FUNNELED)
        bad("mdlm: MPI: expected MPI_THREAD_FUNNELED, seen level %d", level);
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    if (size != expected.size || rank != expected.rank)
        bad("mdlm: MPI: expected to be rank %d of %d, as the launcher has told, seen rank %d of %d; is it the launcher "
            "of %s?",
            expected.rank, expected.size, rank, size, about().c_str());
}

void end() {
    int begun = 0, ended = 0;
    if (MPI_Initialized(&begun) == MPI_SUCCESS && begun != 0 && MPI_Finalized(&ended) == MPI_SUCCESS && ended == 0)
        MPI_Finalize();
}

std::vector<std::string> gather_lines(const std::string &mine) {
    using Line = std::array<char, 1024>;
    Line line{};
    std::snprintf(line.data(), line.size(), "%s", mine.c_str());
    int size = 1;
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    std::vector<Line> all(static_cast<size_t>(size));
    constexpr int bytes = static_cast<int>(sizeof(Line));
    if (MPI_Allgather(line.data(), bytes, MPI_CHAR, all.data(), bytes, MPI_CHAR, MPI_COMM_WORLD) != MPI_SUCCESS)
        bad("mdlm: MPI_Allgather failed");
    std::vector<std::string> lines;
    for (const Line &l : all) lines.emplace_back(l.data());
    return lines;
}

mdlm_comm *make_comm() {
    mdlm_comm *comm = nullptr;
    const mdlm_status status = mdlm_comm_create_mpi(MPI_COMM_WORLD, &comm);
    if (status != MDLM_OK) bad("%s: %s", mdlm_status_name(status), mdlm_last_error());
    return comm;
}

}  // namespace mdlm::tools::mpi

// SPDX-License-Identifier: Apache-2.0
#include "ranks.hpp"

#include <algorithm>
#include <charconv>
#include <cstdlib>
#include <cstring>
#include <exception>
#include <memory>
#include <sched.h>
#include <system_error>
#include <thread>

#include "../text.hpp"
#include "mpi.hpp"

namespace mdlm::tools {
namespace {

int32_t number(const char *name) {
    const char *text = name != nullptr ? std::getenv(name) : nullptr;
    int32_t n = -1;
    if (text == nullptr) return -1;
    const char *end = text + std::strlen(text);
    const auto [last, error] = std::from_chars(text, end, n);
    return error == std::errc() && last == end ? n : -1;
}

struct DestroyComm {
    void operator()(mdlm_comm *comm) const { mdlm_comm_destroy(comm); }
};
using Comm = std::unique_ptr<mdlm_comm, DestroyComm>;

// The line that body failed with; empty if it did not. Its failure ends the group, so that no rank waits for this one.
std::string line_of(const std::function<void(const Rank &)> &body, const Rank &rank) {
    try {
        body(rank);
        return "";
    } catch (const Bad &error) {
        if (rank.comm != nullptr) mdlm_comm_abort(rank.comm);
        return error.what();
    } catch (const std::exception &error) {
        if (rank.comm != nullptr) mdlm_comm_abort(rank.comm);
        return textf("mdlm: rank %d: %s", rank.rank, one_line(error.what()).c_str());
    }
}

}  // namespace

Launched launched() {
    // Open MPI; MPICH and what follows it; MVAPICH2.
    constexpr const char *names[][3] = {{"OMPI_COMM_WORLD_SIZE", "OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_LOCAL_SIZE"},
                                        {"PMI_SIZE", "PMI_RANK", "MPI_LOCALNRANKS"},
                                        {"MV2_COMM_WORLD_SIZE", "MV2_COMM_WORLD_RANK", "MV2_COMM_WORLD_LOCAL_SIZE"}};
    for (const auto &[size_name, rank_name, local_name] : names) {
        const int32_t size = number(size_name), rank = number(rank_name), local = number(local_name);
        if (size > 1 && rank >= 0 && rank < size) return {size, rank, local >= 1 && local <= size ? local : size};
    }
    return {};
}

int32_t cores() {
    cpu_set_t set;
    CPU_ZERO(&set);
    return sched_getaffinity(0, sizeof set, &set) == 0 ? CPU_COUNT(&set) : 1;
}

int32_t group_size(const char *command, int64_t asked) {
    constexpr int64_t most = 1024;  // threads of a group
    const Launched world = launched();
    if (world.size > 1 && asked != not_said && asked != world.size)
        bad("%s: --tensor-model-parallel-size: expected %d, the number of processes that the launcher has started, or "
            "none, seen %lld",
            command, world.size, static_cast<long long>(asked));
    if (world.size > 1) return world.size;
    if (asked == not_said) return 1;
    if (asked < 1 || asked > most)
        bad("%s: --tensor-model-parallel-size: expected 1 .. %lld, seen %lld", command, static_cast<long long>(most),
            static_cast<long long>(asked));
    return static_cast<int32_t>(asked);
}

std::string worst_of(const std::vector<std::string> &lines) {
    std::string worst;
    for (const std::string &line : lines) {
        if (line.empty()) continue;
        if (line.find(mdlm_status_name(MDLM_ERROR_COMM)) == std::string::npos) return line;
        if (worst.empty()) worst = line;
    }
    return worst;
}

Ranks::Ranks(const char *command) : command_(command), world_(launched()) {
    if (processes()) mpi::begin(world_);
}

int32_t Ranks::threads_each(int32_t asked, int32_t size) const {
    if (asked != 0 || size == 1) return asked;
    return std::max(1, cores() / on_this_host(size));
}

void Ranks::throw_the_worst(const std::vector<std::string> &lines) const {
    const std::string worst = worst_of(lines);
    if (!worst.empty()) throw Bad(worst);
}

void Ranks::together(const std::function<void()> &f) {
    if (!processes()) return f();
    throw_the_worst(mpi::gather_lines(line_of([&](const Rank &) { f(); }, {})));
}

void Ranks::run(int32_t size, const std::function<void(const Rank &)> &body) {
    if (!processes()) return size == 1 ? body({}) : run_threads(size, body);
    Comm comm;
    together([&] { comm.reset(mpi::make_comm()); });
    throw_the_worst(mpi::gather_lines(line_of(body, {world_.rank, world_.size, comm.get()})));
}

void Ranks::run_threads(int32_t size, const std::function<void(const Rank &)> &body) {
    std::vector<mdlm_comm *> made(static_cast<size_t>(size));
    if (mdlm_comm_create_threads(size, made.data()) != MDLM_OK) bad("%s: %s", command_, mdlm_last_error());
    const std::vector<Comm> comms(made.begin(), made.end());  // gone only when no rank needs another any more
    std::vector<std::string> lines(static_cast<size_t>(size));
    const auto run_rank = [&](int32_t r) {
        lines[static_cast<size_t>(r)] = line_of(body, {r, size, made[static_cast<size_t>(r)]});
    };
    std::vector<std::thread> threads;
    std::string no_thread;
    try {
        for (int32_t r = 1; r < size; ++r) threads.emplace_back(run_rank, r);
    } catch (const std::system_error &error) {
        no_thread = textf("%s: a thread for rank %zu of %d could not be made: %s", command_, threads.size() + 1, size,
                          one_line(error.what()).c_str());
        mdlm_comm_abort(made[0]);
    }
    if (no_thread.empty()) run_rank(0);
    for (std::thread &thread : threads) thread.join();
    if (!no_thread.empty()) throw Bad(no_thread);
    throw_the_worst(lines);
}

}  // namespace mdlm::tools

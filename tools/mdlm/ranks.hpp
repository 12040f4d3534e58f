// SPDX-License-Identifier: Apache-2.0
// The ranks of a tensor-parallel group: threads of this program, or the processes that an MPI launcher started.
#pragma once
#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "rank.hpp"

namespace mdlm::tools {

// What an MPI launcher has told this process through its environment. size 1: there is none.
struct Launched {
    int32_t size = 1, rank = 0;
    int32_t local_size = 1;  // processes on this host
};
Launched launched();

class Ranks {
public:
    // Under a launcher MPI begins here; it ends with the program. command is for lines: "mdlm bench".
    explicit Ranks(const char *command);
    Ranks(const Ranks &) = delete;

    bool processes() const { return world_.size > 1; }
    bool leads() const { return world_.rank == 0; }  // rank 0 is in this process: it prints
    int32_t on_this_host(int32_t size) const { return processes() ? world_.local_size : size; }
    // Threads of each rank's pool when so many were asked for; 0 = its share of the cores, at least 1.
    int32_t threads_each(int32_t asked, int32_t size) const;

    // Runs f once in every process. When it throws in one of them, it throws the same everywhere.
    void together(const std::function<void()> &f);
    // Runs body on all ranks of a new group at once. A rank that throws ends the group for all; then Bad with the line
    // of the rank that began.
    void run(int32_t size, const std::function<void(const Rank &)> &body);

private:
    void throw_the_worst(const std::vector<std::string> &lines) const;
    void run_threads(int32_t size, const std::function<void(const Rank &)> &body);

    const char *command_;
    Launched world_;
};

inline constexpr int64_t not_said = INT64_MIN;  // in place of a t
// The size of a group of which t was asked for: of the processes, where a launcher started some. Bad if that is
// another.
int32_t group_size(const char *command, int64_t asked);
// Of lines that ranks failed with (empty: it did not), that which tells most: what came of another rank's failure tells
// less than that.
std::string worst_of(const std::vector<std::string> &lines);
int32_t cores();  // that this process may use

}  // namespace mdlm::tools

// SPDX-License-Identifier: Apache-2.0
// What this program needs of MPI: ranks_mpi.cpp where the build has it, ranks_no_mpi.cpp elsewhere.
#pragma once
#include <string>
#include <vector>

#include "mdlm/mdlm.h"
#include "ranks.hpp"

namespace mdlm::tools::mpi {

// The MPI library and its version; empty: built without. Before begin, too.
std::string about();
// Bad in a build without MPI, and when MPI sees another number of processes than the launcher has told.
void begin(const Launched &expected);
// Where it has begun; waits for all processes.
void end();
// Of all processes, on each.
std::vector<std::string> gather_lines(const std::string &mine);
// Over all processes. Bad with the library's line.
mdlm_comm *make_comm();

}  // namespace mdlm::tools::mpi

// SPDX-License-Identifier: Apache-2.0
// Code of one rank, run by a whole group: here by one of threads in this process.
#pragma once
#include <functional>
#include <string>
#include <vector>

#include "mdlm/mdlm.h"

namespace mdlm_test {

// What rank `rank` of `size` does. "" or what is wrong, in one or more lines; it may throw std::exception instead. A
// rank for which something is wrong need not care about the others: its group is aborted.
using RankBody = std::function<std::string(mdlm_comm *comm, int rank, int size)>;

// Runs a body as one rank of a group that exists.
std::string run_rank(const RankBody &body, mdlm_comm *comm, int rank, int size);

// Runs a body on a new group of threads. "" or what is wrong, with its rank; not what ranks say only because another
// had broken the group.
std::string run_group(int size, const RankBody &body);

}  // namespace mdlm_test

// SPDX-License-Identifier: Apache-2.0
// Code of one rank, run by processes under mpirun.
#pragma once
#include <functional>
#include <string>
#include <vector>

#include "mdlm/mdlm.h"

namespace mpi_test {

// What rank `rank` of `size` does: "" or what is wrong. A group of threads can run it as well.
using RankBody = std::function<std::string(mdlm_comm *comm, int rank, int size)>;

struct Case {
    std::string name;
    int size;  // of the group that it is for; 0 = any
    RankBody run;
};

// The main function of a program that mpirun starts: runs, on a communicator of its own, each case whose size is the
// world's and whose name begins with an argument (every one without arguments), and has rank 0 print
//     mpi-case: NAME: holds
//     mpi-case: NAME: fails: what is wrong on the first rank where something is
// --list prints the names of those it would run, --size t for a world of t instead of this one.
int run_cases(int argc, char **argv, const std::vector<Case> &cases);

std::vector<Case> conformance_cases();
std::vector<Case> block_cases();
std::vector<Case> create_cases();
std::vector<Case> failure_cases();

}  // namespace mpi_test

// SPDX-License-Identifier: Apache-2.0
// The suite parallel's cases, which hold for groups of threads, on processes.
#include "../parallel/cases.hpp"
#include "ranks.hpp"

int main(int argc, char **argv) {
    std::vector<mpi_test::Case> cases;
    for (parallel::Case &c : parallel::all_cases()) cases.push_back({"numbers: " + c.name, c.size, std::move(c.run)});
    return mpi_test::run_cases(argc, argv, cases);
}

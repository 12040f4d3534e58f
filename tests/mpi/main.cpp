#include "ranks.hpp"

int main(int argc, char **argv) {
    std::vector<mpi_test::Case> cases = mpi_test::conformance_cases();
    return mpi_test::run_cases(argc, argv, cases);
}

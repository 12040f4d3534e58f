// SPDX-License-Identifier: Apache-2.0
// A build without MPI.
#include "../text.hpp"
#include "mpi.hpp"

namespace mdlm::tools::mpi {
namespace {

[[noreturn]] void refuse(int32_t processes) {
    bad("mdlm: a launcher has started %d processes, and this program was built without MPI: expected ranks as threads, "
        "started once, "
        "--tensor-model-parallel-size %d",
        processes, processes);
}

}  // namespace

std::string about() { return ""; }
void begin(const Launched &expected) { refuse(expected.size); }
void end() {}
std::vector<std::string> gather_lines(const std::string &mine) { return {mine}; }
mdlm_comm *make_comm() { refuse(launched().size); }

}  // namespace mdlm::tools::mpi

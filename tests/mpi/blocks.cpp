// SPDX-License-Identifier: Apache-2.0
// A block over MPI has the bits of a block over threads, at the same t.
#include <thread>

#include "ranks.hpp"
#include "step.hpp"

namespace mpi_test {
namespace {

std::vector<unsigned char> run(mdlm_comm *comm, const Settings &settings) {
    Step step(comm, settings);
    for (int i = 0; i < 2; ++i) {
        OK(step.forward());
        OK(step.backward());
    }
    return step.results();
}

std::string compare(mdlm_comm *comm, int rank, int size, const Settings &settings) {
    const std::vector<unsigned char> ours = run(comm, settings);
    std::vector<mdlm_comm *> comms(static_cast<size_t>(size));
    OK(mdlm_comm_create_threads(size, comms.data()));
    std::vector<unsigned char> theirs;
    std::vector<std::string> wrong(static_cast<size_t>(size));
    std::vector<std::thread> threads;
    for (int r = 0; r < size; ++r)
        threads.emplace_back([&, r] {
            const auto i = static_cast<size_t>(r);
            try {
                std::vector<unsigned char> results = run(comms[i], settings);
                if (r == rank) theirs = std::move(results);
            } catch (const std::exception &e) {
                wrong[i] = e.what();
                mdlm_comm_abort(comms[i]);
            }
        });
    for (std::thread &t : threads) t.join();
    for (mdlm_comm *c : comms) mdlm_comm_destroy(c);
    for (const std::string &w : wrong)
        if (!w.empty()) return "threads: " + w;
    if (ours.size() != theirs.size()) return "other sizes than threads have";
    bool some = false;
    for (size_t i = 0; i < ours.size(); ++i) {
        if (ours[i] != theirs[i])
            return "byte " + std::to_string(i) + " of y, dx and gradients is not that of a group of threads";
        some = some || ours[i] != 0;
    }
    return some ? "" : "nothing but zeros";
}

}  // namespace

std::vector<Case> block_cases() {
    std::vector<Case> cases;
    for (const char *dtype : {"f32", "bf16"})
        for (const char *sequence_parallel : {"0", "1"})
            for (const bool full : {false, true}) {
                Settings settings = {{"params_dtype", dtype}, {"sequence_parallel", sequence_parallel}};
                if (full) {
                    settings.insert(settings.end(), {{"recompute_granularity", "full"},
                                                     {"recompute_method", "uniform"},
                                                     {"recompute_num_layers", "1"}});
                    // Under sequence parallelism the input is a share already.
                    if (sequence_parallel[0] == '0') settings.push_back({"distribute_saved_activations", "1"});
                }
                const std::string name = std::string("block: ") + dtype +
                                         (sequence_parallel[0] == '1' ? ", sequence_parallel" : "") +
                                         (!full                         ? ""
                                          : sequence_parallel[0] == '1' ? ", full recompute"
                                                                        : ", full recompute, distributed inputs");
                cases.push_back({name, 0, [settings](mdlm_comm *comm, int rank, int size) {
                                     return compare(comm, rank, size, settings);
                                 }});
            }
    return cases;
}

}  // namespace mpi_test

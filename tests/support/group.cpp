// SPDX-License-Identifier: Apache-2.0
#include "support/group.hpp"

#include <stdexcept>
#include <thread>

#include "support/hold.hpp"

namespace mdlm_test {
namespace {

bool is_echo(const std::string &text) { return text.find("MDLM_ERROR_COMM") != std::string::npos; }

}  // namespace

std::string run_rank(const RankBody &body, mdlm_comm *comm, int rank, int size) {
    std::string wrong;
    try {
        wrong = body(comm, rank, size);
    } catch (const std::exception &e) {
        wrong = e.what();
    }
    if (!wrong.empty()) mdlm_comm_abort(comm);
    return wrong;
}

std::string run_group(int size, const RankBody &body) {
    std::vector<mdlm_comm *> comms(static_cast<size_t>(size));
    OK(mdlm_comm_create_threads(size, comms.data()));
    std::vector<std::string> texts(static_cast<size_t>(size));
    std::vector<std::thread> threads;
    for (int rank = 0; rank < size; ++rank)
        threads.emplace_back([&, rank] {
            texts[static_cast<size_t>(rank)] = run_rank(body, comms[static_cast<size_t>(rank)], rank, size);
        });
    for (std::thread &t : threads) t.join();
    for (mdlm_comm *comm : comms) mdlm_comm_destroy(comm);

    std::string all, echoes;
    for (int rank = 0; rank < size; ++rank) {
        const std::string &text = texts[static_cast<size_t>(rank)];
        if (text.empty()) continue;
        (is_echo(text) ? echoes : all) +=
            "rank " + std::to_string(rank) + " of " + std::to_string(size) + ": " + text + "\n";
    }
    return all.empty() ? echoes : all;
}

}  // namespace mdlm_test

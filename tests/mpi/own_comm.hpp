// SPDX-License-Identifier: Apache-2.0
// What cases use that make and break communicators of their own.
#pragma once
#include <mdlm/mpi.h>

#include <chrono>
#include <string>
#include <thread>
#include <vector>

#include "ranks.hpp"
#include "step.hpp"

namespace mpi_test {

using Clock = std::chrono::steady_clock;
constexpr int64_t long_ms = 60000;  // a timeout that must not be what ends a wait
constexpr int64_t soon_ms = 10000;  // on a machine that does much else: far below long_ms

inline void sleep_ms(int64_t ms) { std::this_thread::sleep_for(std::chrono::milliseconds(ms)); }
inline int64_t ms_since(Clock::time_point begin) {
    return std::chrono::duration_cast<std::chrono::milliseconds>(Clock::now() - begin).count();
}

// A communicator that the case destroys when it likes.
struct Own {
    explicit Own(MPI_Comm world = MPI_COMM_WORLD) { OK(mdlm_comm_create_mpi(world, &comm)); }
    ~Own() { mdlm_comm_destroy(comm); }
    Own(const Own &) = delete;
    void destroy() { mdlm_comm_destroy(comm), comm = nullptr; }
    mdlm_comm *comm = nullptr;
};

inline mdlm_status sum(mdlm_comm *comm, int64_t count, int64_t timeout_ms) {
    std::vector<float> values(static_cast<size_t>(count), 1);
    return mdlm_comm_all_reduce(comm, values.data(), values.data(), count, MDLM_DTYPE_F32, MDLM_REDUCE_SUM, timeout_ms);
}

// "" when the status is COMM, soon enough and with text in its line; call it right after.
inline std::string expect_comm(mdlm_status status, const std::string &text, Clock::time_point begin,
                               int64_t most_ms = soon_ms) {
    const std::string line = mdlm_last_error();
    if (status != MDLM_ERROR_COMM)
        return std::string("status ") + mdlm_status_name(status) + " (" + line + "), expected an error with: " + text;
    if (line.find(text) == std::string::npos) return "the line is: " + line + "; expected in it: " + text;
    if (ms_since(begin) > most_ms) return "it took " + std::to_string(ms_since(begin)) + " ms to say: " + line;
    return "";
}

inline std::string expect_status(mdlm_status status, mdlm_status expected, const std::string &text) {
    const std::string line = mdlm_last_error();
    if (status == expected && line.find(text) != std::string::npos) return "";
    return std::string(mdlm_status_name(status)) + ": " + line + "; expected " + mdlm_status_name(expected) +
           " with: " + text;
}

inline Case case_of(const std::string &name, std::string (*f)(int rank, int size, int64_t count), int64_t count = 0) {
    return {name, 0, [f, count](mdlm_comm *, int rank, int size) { return f(rank, size, count); }};
}

}  // namespace mpi_test

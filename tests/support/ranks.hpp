// SPDX-License-Identifier: Apache-2.0
// Rank code on threads. A body runs once for each rank and returns "" or what is wrong: doctest's REQUIRE must not run
// on other threads, and the same body can run in processes.
#pragma once
#include <chrono>
#include <functional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "mdlm/mdlm.h"
#include "support/checks.hpp"

namespace mdlm_test {

// The calling rank's end of a group of threads. Its body may destroy the handle and set it to NULL.
struct Rank {
    mdlm_comm *comm = nullptr;
    int rank = 0, size = 1;
};

// What is wrong on each rank, a line for each; the handles that bodies left are destroyed in the end, when all have
// returned.
inline std::string on_threads(std::vector<mdlm_comm *> comms, const std::function<std::string(Rank &)> &body) {
    const int size = static_cast<int>(comms.size());
    std::vector<std::string> wrong(comms.size());
    std::vector<Rank> ranks;
    for (int r = 0; r < size; ++r) ranks.push_back({comms[static_cast<size_t>(r)], r, size});
    std::vector<std::thread> threads;
    for (size_t r = 0; r < ranks.size(); ++r)
        threads.emplace_back([&, r] {
            wrong[r] = body(ranks[r]);
            // The others need not wait.
            if (!wrong[r].empty() && ranks[r].comm != nullptr) mdlm_comm_abort(ranks[r].comm);
        });
    for (std::thread &t : threads) t.join();
    std::string all;
    for (size_t r = 0; r < ranks.size(); ++r) {
        mdlm_comm_destroy(ranks[r].comm);
        if (!wrong[r].empty()) all += "rank " + std::to_string(r) + ": " + wrong[r] + "\n";
    }
    return all;
}

inline std::string on_threads(int size, const std::function<std::string(Rank &)> &body) {
    std::vector<mdlm_comm *> comms(static_cast<size_t>(size), nullptr);
    if (mdlm_comm_create_threads(size, comms.data()) != MDLM_OK) return mdlm_last_error();
    return on_threads(std::move(comms), body);
}

// "" when status is the expected one and, if it is an error, left one line with word in it.
inline std::string wrong_with(mdlm_status status, mdlm_status expected, const char *word, const char *call) {
    if (status != expected)
        return std::string(call) + " gives " + said(status) + ": expected " + mdlm_status_name(expected) + " with " +
               word;
    if (status == MDLM_OK) return "";
    const std::string wrong = wrong_with(mdlm_last_error(), word);
    return wrong.empty() ? "" : std::string(call) + ": " + wrong;
}

// For calls that must not wait for a timeout of minutes. Generous: a slow machine is no failure.
class Soon {
public:
    bool over() const { return std::chrono::steady_clock::now() - start_ > std::chrono::seconds(20); }

private:
    std::chrono::steady_clock::time_point start_ = std::chrono::steady_clock::now();
};

inline void sleep_ms(int ms) { std::this_thread::sleep_for(std::chrono::milliseconds(ms)); }

}  // namespace mdlm_test

// In a body: what is not as it should be ends it with a line that says so.
#define EXPECT(condition)                                                                                              \
    do {                                                                                                               \
        if (!(condition)) return std::string(__FILE__ ":") + std::to_string(__LINE__) + ": not so: " #condition;       \
    } while (0)
// Of a status that was just returned.
#define EXPECT_SAID(status, expected, word)                                                                            \
    do {                                                                                                               \
        const std::string wrong_ = mdlm_test::wrong_with((status), (expected), (word), #status);                       \
        if (!wrong_.empty()) return std::string(__FILE__ ":") + std::to_string(__LINE__) + ": " + wrong_;              \
    } while (0)
#define EXPECT_FAILS(call, expected, word)                                                                             \
    do {                                                                                                               \
        mdlm_set_last_error("");                                                                                       \
        EXPECT_SAID(call, expected, word);                                                                             \
    } while (0)
#define EXPECT_OK(call) EXPECT_FAILS(call, MDLM_OK, "")

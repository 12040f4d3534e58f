// SPDX-License-Identifier: Apache-2.0
// The cases on groups of threads; and that they can fail.
#include <doctest/doctest.h>

#include <chrono>
#include <cstdio>
#include <ctime>

#include "cases.hpp"
#include "check_draw.hpp"
#include "mutants.hpp"
#include "support/repro.hpp"

namespace parallel {
namespace {

void run_all(const std::vector<Case> &cases) {
    for (const Case &c : cases) {
        const auto begin = std::chrono::steady_clock::now();
        const std::clock_t cpu = std::clock();
        const std::string wrong = mdlm_test::run_group(c.size, c.run);
        const double seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
        std::printf("parallel: %s: %s, %.1f s, on the cores %.1f s\n", c.name.c_str(),
                    wrong.empty() ? "holds" : "fails", seconds,
                    static_cast<double>(std::clock() - cpu) / CLOCKS_PER_SEC);
        std::fflush(stdout);
        CHECK_MESSAGE(wrong.empty(), c.name, ": ", wrong);
    }
}

constexpr uint64_t most_draws = 80;

struct Caught {
    uint64_t at = 0;  // the draw; 0: never
    int reached = 0;  // draws in which the fault was done, up to that one
    std::string what;
};
Caught hunt(const Mutant &mutant) {
    Caught c;
    for (uint64_t seed = 1; seed <= most_draws && c.at == 0; ++seed) {
        const property::Draw d = property::draw_for_group(seed, mutant.size);
        std::atomic<int64_t> reached{0};
        const std::string wrong = mdlm_test::run_group(mutant.size, [&](mdlm_comm *comm, int rank, int size) {
            const auto intruder = mutant.make(rank, size, reached);
            Tally tally;
            return check_draw(d, comm, rank, size, tally, intruder.get());
        });
        if (reached == 0) {
            CHECK_MESSAGE(wrong.empty(), mutant.name, ", not done: ", wrong);
            continue;
        }
        ++c.reached;
        if (wrong.empty()) continue;
        // Seen in the numbers, not by a call that failed.
        const bool numbers = wrong.find("other bits") != std::string::npos || wrong.find("off by") != std::string::npos;
        CHECK_MESSAGE(numbers, mutant.name, ": ", wrong);
        c.at = seed, c.what = wrong.substr(0, wrong.find('\n'));
    }
    return c;
}

}  // namespace

// Under sanitizers drawn steps take the same paths.
TEST_CASE("parallel: golden cases on groups of threads" * doctest::skip(mdlm_test::sanitized)) {
    run_all(golden_cases());
}
TEST_CASE("parallel: parameters of a group") { run_all(sharding_cases()); }
TEST_CASE("parallel: drawn steps on groups of threads") { run_all(drawn_cases()); }
TEST_CASE("parallel: exact sums" * doctest::skip(mdlm_test::sanitized)) { run_all(exact_cases()); }
TEST_CASE("parallel: closed forms of bytes and collectives") { run_all(closed_form_cases()); }
TEST_CASE("parallel: the predicted peak of every rank") { run_all(memory_cases()); }

TEST_CASE("parallel: every mutant is reached and caught") {
    auto mutants = op_mutants();
    for (Mutant &m : offset_mutants()) mutants.push_back(std::move(m));
    size_t caught = 0;
    for (const Mutant &m : mutants) {
        const Caught c = hunt(m);
        CHECK_MESSAGE(c.reached > 0, "not reached in ", most_draws, " draws: ", m.name);
        CHECK_MESSAGE(c.at > 0, "not caught, although reached in ", c.reached, " of ", most_draws, " draws: ", m.name);
        if (c.at == 0) continue;
        ++caught;
        std::printf("  %s: caught by draw %llu, the first %d that reached it: %s\n", m.name.c_str(),
                    static_cast<unsigned long long>(c.at), c.reached, c.what.c_str());
        std::fflush(stdout);
    }
    std::printf("mutants: %zu of %zu caught\n", caught, mutants.size());
}

}  // namespace parallel

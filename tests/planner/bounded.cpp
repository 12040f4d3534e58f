// SPDX-License-Identifier: Apache-2.0
// Frontiers of long chains: their memory has a bound, and what was left out is said.
#include <doctest/doctest.h>

#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdio>
#include <functional>
#include <new>

#include "draw.hpp"
#include "support/repro.hpp"

namespace planner_test {
namespace {

using namespace mdlm::planner;

// Layers of `kinds` types in turn, six policies each, no two numbers alike.
Chain long_chain(int64_t layers, int64_t kinds, int64_t tapes) {
    Random random(7);
    Chain c;
    c.in_flight = tapes, c.input_bytes = 1000;
    for (int64_t k = 0; k < kinds; ++k) {
        LayerType t;
        t.boundary_bytes = t.grad_boundary_bytes = 1000, t.forward_ns = 100000 + random.in(0, 999),
        t.unsaved_forward_bytes = 5000;
        for (int64_t p = 0; p < 6; ++p) {
            PolicyCost q;
            q.saved_bytes = 1000 + 2000 * p + random.in(0, 499),
            q.extra_ns = p == 5 ? 0 : 3000 * (5 - p) * (5 - p) + random.in(0, 999);
            q.forward_bytes = q.saved_bytes + 6000, q.backward_bytes = q.saved_bytes + 9000;
            t.policies.push_back(q);
        }
        c.types.push_back(t);
    }
    for (int64_t i = 0; i < layers; ++i) c.layers.push_back(static_cast<int32_t>(i % kinds));
    return c;
}

// What f says, or "out of memory", run in a process that may take so many bytes more than this one has.
std::string within(int64_t more_bytes, const std::function<std::string()> &f) {
    int ends[2];
    REQUIRE(pipe(ends) == 0);
    const pid_t child = fork();
    REQUIRE(child >= 0);
    if (child == 0) {
        std::string said;
        long long pages = 0;
        std::FILE *statm = std::fopen("/proc/self/statm", "r");
        if (statm == nullptr || std::fscanf(statm, "%lld", &pages) != 1) said = "no /proc/self/statm";
        const auto bytes = static_cast<rlim_t>(pages * sysconf(_SC_PAGESIZE) + more_bytes);
        const rlimit limit = {bytes, bytes};
        setrlimit(RLIMIT_AS, &limit);
        try {
            if (said.empty()) said = f();
        } catch (const std::bad_alloc &) {
            said = "out of memory";
        } catch (const std::exception &e) {
            said = e.what();
        }
        const bool written = write(ends[1], said.data(), said.size()) == static_cast<ssize_t>(said.size());
        _exit(written ? 0 : 1);
    }
    close(ends[1]);
    std::string said;
    char part[512];
    for (ssize_t n = 0; (n = read(ends[0], part, sizeof part)) > 0;) said.append(part, static_cast<size_t>(n));
    close(ends[0]);
    int status = 0;
    waitpid(child, &status, 0);
    return WIFEXITED(status) && WEXITSTATUS(status) == 0
               ? said
               : said + " (the process ended with " + std::to_string(status) + ")";
}

}  // namespace

TEST_CASE("planner: the frontier of 4096 layers fits 512 MiB, and says how good it is") {
    if (mdlm_test::sanitized) {
        mdlm_test::skip("because a sanitizer maps more memory than any limit lets it");
        return;
    }
    const std::string wrong = within(int64_t{512} << 20, []() -> std::string {
        const Frontier f = frontier(long_chain(4096, 1, 1));
        size_t items = 0;
        for (const FrontierPoint &p : f.points) items += p.plan.size();
        if (items * sizeof(PlanItem) > size_t{64} << 20) return std::to_string(items) + " items of plans";
        if (f.points.size() < 100) return std::to_string(f.points.size()) + " points";
        if (f.optimal || f.gap_ns == 0) return "said to be optimal";
        if (f.points.back().extra_ns > f.gap_ns)
            return "the last point costs " + std::to_string(f.points.back().extra_ns);
        // What is left out between two points counts, too: a hundredth of all, at most.
        if (f.gap_ns > f.points.front().extra_ns / 100)
            return "gap " + std::to_string(f.gap_ns) + " of " + std::to_string(f.points.front().extra_ns);
        return "";
    });
    CHECK(wrong == "");
}

TEST_CASE("planner: a thinned frontier against exact plans") {
    for (const int64_t tapes : {1, 3}) {
        CAPTURE(tapes);
        const Chain chain = long_chain(24, 2, tapes);
        const Frontier exact = frontier(chain), some = frontier(chain, 40);
        CHECK(exact.optimal);
        CHECK_FALSE(some.optimal);
        CHECK(some.points.size() <= 40);
        CHECK(some.points.size() > 20);
        CHECK(some.gap_ns < exact.points.front().extra_ns / 5);  // 40 points of hundreds
        for (const FrontierPoint &p : exact.points) {
            const FrontierPoint *best = nullptr;
            for (const FrontierPoint &q : some.points)
                if (q.peak_bytes <= p.peak_bytes) best = &q;
            REQUIRE(best != nullptr);
            CHECK(best->extra_ns >= p.extra_ns);
            CHECK(best->extra_ns - some.gap_ns <= p.extra_ns);
        }
    }
}

}  // namespace planner_test

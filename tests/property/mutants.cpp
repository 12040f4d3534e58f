// SPDX-License-Identifier: Apache-2.0
// The comparison of bits can fail: planted faults are caught by it, each on some draw.
#include <doctest/doctest.h>

#include <cstdio>
#include <map>

#include "mutants.hpp"
#include "support/wrapped_device.hpp"

namespace property {
namespace {

constexpr uint64_t most_draws = 300;

struct Expected {
    Draw draw;
    Outcome outcome;
};
const Expected &expected(uint64_t seed) {
    static std::map<uint64_t, Expected> all;
    auto found = all.find(seed);
    if (found == all.end()) {
        const Draw d = draw(seed);
        found = all.emplace(seed, Expected{d, run(d, Which::keep_everything, d.threads)}).first;
    }
    return found->second;
}

struct Caught {
    uint64_t at = 0;  // the draw; 0: never
    int reached = 0;  // draws in which the fault was done, up to that one
    std::string what;
};
Caught hunt(Mutant &mutant) {
    Caught c;
    for (uint64_t seed = 1; seed <= most_draws; ++seed) {
        const Expected &e = expected(seed);
        const int64_t before = mutant.reached;
        const Outcome seen = run(e.draw, Which::drawn, e.draw.threads, &mutant);
        CHECK_MESSAGE(seen.failure.empty(), mutant.name, ": ", seen.failure, "\n  ", describe(e.draw));
        if (mutant.reached == before) continue;
        ++c.reached;
        c.what = difference(e.outcome, seen);
        if (c.what.empty()) continue;
        c.at = seed;
        return c;
    }
    return c;
}

class Unspoiled final : public Intruder {
public:
    std::unique_ptr<mdlm::Device> device(std::unique_ptr<mdlm::Device> d) override {
        return std::make_unique<mdlm_test::WrappedDevice>(std::move(d));
    }
};

}  // namespace

TEST_CASE("property: a wrapped device without a fault gives the same bits") {
    for (uint64_t seed = 1; seed <= 40; ++seed) {
        Unspoiled intruder;
        const Expected &e = expected(seed);
        CHECK_MESSAGE(difference(e.outcome, run(e.draw, Which::drawn, e.draw.threads, &intruder)) == "",
                      describe(e.draw));
    }
}

TEST_CASE("property: every seeded mutant is reached and caught") {
    auto mutants = device_mutants();
    for (auto &m : plan_mutants()) mutants.push_back(std::move(m));
    CHECK(mutants.size() >= 10);
    size_t caught = 0;
    for (const auto &mutant : mutants) {
        const Caught c = hunt(*mutant);
        CHECK_MESSAGE(c.reached > 0, "not reached in ", most_draws, " draws: ", mutant->name);
        CHECK_MESSAGE(c.at > 0, "not caught, although reached in ", c.reached, " of ", most_draws,
                      " draws: ", mutant->name);
        if (c.at == 0) continue;
        ++caught;
        std::printf("  %s: caught by draw %llu, the first %d that reached it: %s\n", mutant->name.c_str(),
                    static_cast<unsigned long long>(c.at), c.reached, c.what.c_str());
    }
    std::printf("mutants: %zu of %zu caught\n", caught, mutants.size());
}

}  // namespace property

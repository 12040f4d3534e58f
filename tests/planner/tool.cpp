// SPDX-License-Identifier: Apache-2.0
// The program: mdlm plan --chain.
#include <doctest/doctest.h>

#include "planner/chain.hpp"
#include "program.hpp"

namespace planner_test {

TEST_CASE("planner: mdlm plan --chain answers what the library does") {
    using namespace mdlm::planner;
    const Chain c = read_chain(example);
    for (const char *budget : {"0", "17", "18", "24", "1KiB", "0.001MB"}) {
        const int64_t bytes = budget == std::string("1KiB")      ? 1024
                              : budget == std::string("0.001MB") ? 1000
                                                                 : std::atoi(budget);
        const Ended e = run({"--chain", "-", "--budget", budget, "--json"});
        CAPTURE(e.err);
        CHECK(e.status == 0);
        CHECK(e.out == to_json(c, solve(c, bytes)) + "\n");
    }
    CHECK(run({"--chain=-", "--sweep", "--json"}).out == to_json(c, frontier(c)) + "\n");
    CHECK(run({"--chain", "-", "--budget", "17"}).out ==
          "no plan fits; the smallest budget that would do is 18 bytes\n");
    CHECK(run({"--chain", "-", "--budget", "20"}).out ==
          "peak     20 bytes (the smallest budget that does is 18)\nextra    23 ns, optimal\nlayers\n    0  X\n    1-2 "
          " unit, input keep\n        1  X\n        2  A\n"
          "    3-4  unit, input keep\n        3  X\n        4  A\n    5  A\n");
    const Ended sweep = run({"--chain", "-", "--sweep"});
    CHECK(
        sweep.out.find("                22                  19  0-2  X, 3-4  unit, input keep [3  X, 4  A], 5  A\n") !=
        std::string::npos);
    const Ended help = run({"--help"});
    CHECK(help.status == 0);
    CHECK(help.out.find("--label-cap") != std::string::npos);
}

TEST_CASE("planner: mdlm plan refuses what it is not asked right") {
    expect_refused(run({}), "--chain");
    expect_refused(run({"--chain", "-"}), "--budget");
    expect_refused(run({"--chain", "-", "--sweep", "--budget", "3"}), "both");
    expect_refused(run({"--chain", "-", "--budget"}), "--budget");
    for (const char *budget :
         {"", "-1", "1e3", "3 apples", "1.2.3", "GiB", "99999999999999999999", "9000000TiB", "nan", "0x10"})
        expect_refused(run({"--chain", "-", "--budget", budget}), "--budget");
    expect_refused(run({"--chain", "-", "--sweep", "--label-cap", "x"}), "--label-cap");
    expect_refused(run({"--chain", "/nowhere/chain.json", "--sweep"}), "/nowhere/chain.json");
    expect_refused(run({"--chain", "/", "--sweep"}), "/");
    expect_refused(run({"--chain", "-", "--sweep", "--chains"}), "--chains");
    expect_refused(run({"--chain", "-", "--sweep"}, "{\"format\": \"mdlm-chain\",\n\"versions\": 1}"), "versions");
    expect_refused(run({"--chain", "-", "--sweep"}, ""), "JSON");
}

}  // namespace planner_test

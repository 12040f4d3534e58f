// SPDX-License-Identifier: Apache-2.0
// bf16: at most twice as far from the float64 results as a plain implementation that rounds the same tensors.
#include <algorithm>
#include <cmath>
#include <cstdio>
#include <doctest/doctest.h>

#include "bf16_oracle.hpp"
#include "golden_support.hpp"

namespace golden {
namespace {

using mdlm::tools::relative_error;

constexpr double tiny = 1e-6;  // float32 accumulation, where the oracle's is float64

struct Share {
    double worst = 0;
    std::string where;
    void take(const std::string &name, double error, double allowed) {
        CAPTURE(name);
        CHECK(error <= allowed);
        if (where.empty() || error / allowed > worst) {
            worst = error / allowed;
            where = name;
        }
    }
};

void expect_twice_the_oracle(const Place &place, Attention attention) {
    const char *backend = attention == Attention::fused ? "fused" : "unfused";
    Share most;
    for (const std::string &name : case_names()) {
        CAPTURE(name);
        const mdlm::tools::Case &c = case_named(name);
        const OracleResult oracle = run_oracle(c, Rounding::bf16, attention);
        const mdlm::tools::Outcome seen =
            run(name, place.kind, {{"params_dtype", "bf16"}, {"attention_backend", backend}});
        Share share;
        const auto compare = [&](const std::string &tensor, const Values &a, const Values &low, const Values &exact) {
            const double least = relative_error(low, exact);
            CHECK(least > 0);  // an oracle that rounds nothing measures nothing
            share.take(tensor, relative_error(a, exact), 2 * least + tiny);
        };
        compare("output", seen.output, oracle.output, c.output.values);
        compare("grad_input", seen.grad_input, oracle.grad_input, c.grad_input.values);
        REQUIRE(seen.grads.size() == c.grads.size());
        for (const auto &[parameter, values] : seen.grads)
            compare(parameter, values, oracle.grads.at(parameter), c.grads.at(parameter).values);
        std::printf("bf16 %-9s %-7s %-12s uses %3.0f %% of its allowance (%s)\n", place.name, backend, name.c_str(),
                    100 * share.worst, share.where.c_str());
        most.take(name + " " + share.where, share.worst, 1);
    }
    std::printf("note: bf16 on %s, %s attention, uses at most %.0f %% of twice the oracle's error (%s)\n", place.name,
                backend, 100 * most.worst, most.where.c_str());
}

}  // namespace

TEST_CASE("golden: the oracle's rounding to bf16") {
    const double one_up = 1 + 0x1p-7;
    CHECK(to_bf16(1 + 0x1p-8) == 1);                     // a tie goes to the even neighbour, below
    CHECK(to_bf16(one_up + 0x1p-8) == one_up + 0x1p-7);  // and above
    CHECK(to_bf16(1 + 0x1p-8 + 0x1p-40) == one_up);      // one rounding, not two over float
    CHECK(to_bf16(-(1 + 0x1p-8 + 0x1p-40)) == -one_up);
    CHECK(to_bf16(0x1p-130 + 0x1p-134) == 0x1p-130);
    CHECK(to_bf16(3.4e38) == HUGE_VAL);
    CHECK(std::signbit(to_bf16(-0.0)));
}

TEST_CASE("golden: the oracle without rounding gives the cases' numbers") {
    for (const std::string &name : case_names())
        for (const Attention attention : {Attention::fused, Attention::unfused}) {
            CAPTURE(name);
            const mdlm::tools::Case &c = case_named(name);
            const OracleResult exact = run_oracle(c, Rounding::none, attention);
            CHECK(relative_error(exact.output, c.output.values) <= 1e-13);
            CHECK(relative_error(exact.grad_input, c.grad_input.values) <= 1e-13);
            REQUIRE(exact.grads.size() == c.grads.size());
            for (const auto &entry : exact.grads) {
                const std::string &parameter = entry.first;
                CAPTURE(parameter);
                CHECK(relative_error(entry.second, c.grads.at(parameter).values) <= 1e-13);
            }
        }
}

TEST_CASE("golden: bf16 on the cpu is within twice the oracle's error") {
    expect_twice_the_oracle(places[0], Attention::fused);
    expect_twice_the_oracle(places[0], Attention::unfused);
}

TEST_CASE("golden: bf16 on the reference is within twice the oracle's error") {
    expect_twice_the_oracle(places[1], Attention::fused);
    expect_twice_the_oracle(places[1], Attention::unfused);
}

}  // namespace golden

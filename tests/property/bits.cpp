// SPDX-License-Identifier: Apache-2.0
// Promise 1: the same bits under every plan, whatever a trainer may set.
#include <doctest/doctest.h>

#include <cerrno>
#include <cstdio>
#include <cstdlib>

#include "step.hpp"
#include "support/repro.hpp"

namespace property {
namespace {

constexpr const char *test_name = "property: every drawn plan gives the bits of the one that keeps everything";

struct Coverage {
    int draws = 0, f32 = 0, bf16 = 0, replayed_matmuls = 0, units_of_several = 0, dropout = 0, grouped = 0, packed = 0;
    int host = 0, tapes = 0, frozen = 0, threads = 0;
};

std::string command(const Draw &d) {
    return "MDLM_DRAW=" + std::to_string(d.seed) + " " + program_invocation_name + " '--test-case=" + test_name + "'";
}

void check(const Draw &d, Coverage &seen) {
    const std::string before = mdlm_test::repro_text;
    if (before.empty()) mdlm_test::repro(command(d));  // should it crash
    const Outcome expected = run(d, Which::keep_everything, d.threads);
    const Outcome drawn = run(d, Which::drawn, d.threads);
    std::string wrong = difference(expected, drawn);
    if (wrong.empty() && d.other_threads != 0) {
        wrong = difference(expected, run(d, Which::drawn, d.other_threads));
        if (!wrong.empty()) wrong += " (on " + std::to_string(d.other_threads) + " threads)";
    }
    if (!wrong.empty()) {
        FAIL_CHECK(wrong, "\n  ", describe(d), "\n  repeat it with: ", command(d));
    } else if (before.empty()) {
        mdlm_test::repro_text.clear();
    }
    ++seen.draws;
    ++(d.config.params_dtype == MDLM_DTYPE_BF16 ? seen.bf16 : seen.f32);
    seen.replayed_matmuls += drawn.replayed_matmul_flops > 0;
    seen.units_of_several += drawn.units_of_several;
    seen.dropout += d.drops();
    seen.grouped += d.grouped();
    seen.packed += d.packed();
    seen.host += drawn.host_bytes > 0;
    seen.tapes += d.shape.in_flight > 1 && d.micro.size() > 1;
    seen.frozen += d.freeze != Draw::Freeze::nothing;
    seen.threads += d.other_threads != 0;
}

}  // namespace

TEST_CASE(test_name) {
    Coverage seen;
    if (const char *only = std::getenv("MDLM_DRAW")) {  // "123", or "1000-5000" to look further than the suite does
        char *rest = nullptr;
        const uint64_t first = std::strtoull(only, &rest, 10),
                       last = *rest == '-' ? std::strtoull(rest + 1, nullptr, 10) : first;
        for (uint64_t seed = first; seed <= last; ++seed) {
            if (first == last) std::printf("%s\n", describe(draw(seed)).c_str());
            check(draw(seed), seen);
        }
        return;
    }
    constexpr int draws = 640;
    for (uint64_t seed = 1; seed <= draws; ++seed) check(draw(seed), seen);

    const auto percent = [&](int count) { return 100.0 * count / seen.draws; };
    std::printf("coverage: %d draws (f32 %d, bf16 %d); replayed matmuls %.0f %%, units of several layers %.0f %%, "
                "dropout %.0f %%, grouped "
                "queries %.0f %%, packed documents %.0f %%; also host storage %.0f %%, several tapes %.0f %%, frozen "
                "parameters %.0f %%, "
                "other threads %.0f %%\n",
                seen.draws, seen.f32, seen.bf16, percent(seen.replayed_matmuls), percent(seen.units_of_several),
                percent(seen.dropout), percent(seen.grouped), percent(seen.packed), percent(seen.host),
                percent(seen.tapes), percent(seen.frozen), percent(seen.threads));
    CHECK(seen.f32 >= 300);
    CHECK(seen.bf16 >= 300);
    CHECK(percent(seen.replayed_matmuls) >= 50);
    CHECK(percent(seen.units_of_several) >= 30);
    CHECK(percent(seen.dropout) >= 30);
    CHECK(percent(seen.grouped) >= 30);
    CHECK(percent(seen.packed) >= 30);
    CHECK(percent(seen.host) >= 15);
    CHECK(percent(seen.tapes) >= 15);
}

}  // namespace property

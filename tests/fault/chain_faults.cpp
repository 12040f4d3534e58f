// SPDX-License-Identifier: Apache-2.0
// Every allocation of the planner on abstract chains fails once: the call says MEMORY, nothing leaks, and the next one
// answers.
#include <mdlm/chain.h>

#include <doctest/doctest.h>

#include <string>

#include "fault/inject.hpp"
#include "planner/example.hpp"
#include "support/checks.hpp"

using namespace mdlm_test;

namespace {

int64_t strike_everywhere(const std::string &chain, bool sweep) {
    static char text[1 << 17];
    size_t length = 0;
    const auto call = [&] {
        return sweep ? mdlm_chain_frontier(chain.data(), chain.size(), nullptr, text, sizeof text, &length)
                     : mdlm_chain_solve(chain.data(), chain.size(), 30, nullptr, text, sizeof text, &length);
    };
    REQUIRE_OK(call());
    REQUIRE_OK(call());
    const std::string good = text;
    const int64_t alive = inject::live_blocks();
    inject::arm(Fault::heap, INT64_MAX, false);
    const mdlm_status calm = call();
    const int64_t places = inject::calls();
    inject::disarm();
    CHECK_OK(calm);
    CHECK(inject::live_blocks() == alive);
    for (int64_t n = 1; n <= places; ++n) {
        mdlm_set_last_error("");
        inject::arm(Fault::heap, n, false);
        const mdlm_status status = call();
        const bool unneeded = inject::only_nothrow_struck();
        inject::disarm();
        CAPTURE(n);
        if (status == MDLM_OK) {
            CHECK(unneeded);  // a sort that goes on without its buffer
            CHECK(text == good);
        } else {
            CHECK(status == MDLM_ERROR_MEMORY);
            CHECK(wrong_with(mdlm_last_error(), "") == "");
        }
        CHECK(inject::live_blocks() == alive);
    }
    CHECK_OK(call());
    CHECK(text == good);
    return places;
}

}  // namespace

TEST_CASE("every operator new fails: abstract chains") {
    std::string chain = planner_test::example;
    for (const char *tapes : {"\"in_flight\": 1", "\"in_flight\": 2"}) {
        chain.replace(chain.find("\"in_flight\": "), std::string("\"in_flight\": 1").size(), tapes);
        CHECK(strike_everywhere(chain, false) > 50);
        CHECK(strike_everywhere(chain, true) > 50);
    }
}

// SPDX-License-Identifier: Apache-2.0
// The planner on abstract chains through the C ABI.
#include <mdlm/chain.h>

#include <doctest/doctest.h>

#include <string>
#include <thread>
#include <vector>

#include "example.hpp"
#include "support/checks.hpp"

namespace planner_test {

TEST_CASE("planner: chains through the C ABI") {
    const std::string text = example;
    const std::string expected = R"({"feasible": true, "optimal": true, "gap_ns": 0, "peak_bytes": 64, "extra_ns": 0, )"
                                 R"("minimum_budget_bytes": 18, "plan": [)"
                                 R"({"layer": 0, "policy": "A"}, {"layer": 1, "policy": "A"}, )"
                                 R"({"layer": 2, "policy": "A"}, {"layer": 3, "policy": "A"}, )"
                                 R"({"layer": 4, "policy": "A"}, {"layer": 5, "policy": "A"}]})";
    mdlm_chain_options one_label = MDLM_CHAIN_OPTIONS_INIT, negative = MDLM_CHAIN_OPTIONS_INIT;
    one_label.label_cap = 1, negative.label_cap = -1;
    size_t length = 0;
    CHECK_OK(mdlm_chain_solve(text.data(), text.size(), 64, nullptr, nullptr, 0, &length));
    CHECK(length == expected.size());
    for (size_t cap : {size_t{1}, size_t{10}, length, length + 1, length + 100}) {
        std::string buf(cap + 8, '#');
        size_t again = 0;
        CHECK_OK(mdlm_chain_solve(text.data(), text.size(), UINT64_MAX, nullptr, buf.data(), cap, &again));
        CHECK(again == length);
        CHECK(buf.substr(0, std::min(cap - 1, length)) == expected.substr(0, cap - 1));
        CHECK(buf[std::min(cap - 1, length)] == 0);
        CHECK(buf.substr(cap) == "########");
    }
    CHECK_OK(mdlm_chain_solve(text.data(), text.size(), 0, &one_label, nullptr, 0, nullptr));
    std::string all(100000, 0);
    CHECK_OK(mdlm_chain_frontier(text.data(), text.size(), nullptr, all.data(), all.size(), &length));
    all.resize(length);
    CHECK(all.find(R"("peak_bytes": 64, "extra_ns": 0)") != std::string::npos);
    CHECK(all.find(R"("optimal": true)") != std::string::npos);
    char buf[4] = "abc";
    length = 77;
    CHECK_FAILS(mdlm_chain_solve(nullptr, 5, 1, nullptr, buf, 4, &length), MDLM_ERROR_ARGUMENT, "text");
    CHECK_FAILS(mdlm_chain_solve(text.data(), text.size(), 1, nullptr, nullptr, 4, &length), MDLM_ERROR_ARGUMENT,
                "buf");
    CHECK_FAILS(mdlm_chain_solve(text.data(), text.size(), 1, &negative, buf, 4, &length), MDLM_ERROR_ARGUMENT,
                "label_cap");
    CHECK_FAILS(mdlm_chain_solve(text.data(), 10, 1, nullptr, buf, 4, &length), MDLM_ERROR_FORMAT, "JSON");
    CHECK_FAILS(mdlm_chain_frontier(nullptr, 5, nullptr, buf, 4, &length), MDLM_ERROR_ARGUMENT, "text");
    CHECK_FAILS(mdlm_chain_frontier(text.data(), text.size(), nullptr, nullptr, 4, &length), MDLM_ERROR_ARGUMENT,
                "buf");
    CHECK_FAILS(mdlm_chain_frontier(text.data(), text.size(), &negative, buf, 4, &length), MDLM_ERROR_ARGUMENT,
                "label_cap");
    CHECK_FAILS(mdlm_chain_frontier("{}", 2, nullptr, buf, 4, &length), MDLM_ERROR_FORMAT, "format");
    CHECK(length == 77);
    CHECK(std::string(buf) == "abc");
}

TEST_CASE("planner: several threads solve at once") {
    const std::string text = example;
    std::vector<std::string> answers(4, std::string(20000, 0));
    std::vector<mdlm_status> statuses(4, MDLM_ERROR_INTERNAL);
    std::vector<std::thread> threads;
    for (size_t i = 0; i < answers.size(); ++i)
        threads.emplace_back([&, i] {
            for (int n = 0; n < 20; ++n) {
                size_t length = 0;
                statuses[i] = mdlm_chain_frontier(text.data(), text.size(), nullptr, answers[i].data(),
                                                  answers[i].size(), &length);
            }
        });
    for (auto &t : threads) t.join();
    for (size_t i = 0; i < answers.size(); ++i) {
        CHECK(statuses[i] == MDLM_OK);
        CHECK(answers[i] == answers[0]);
    }
}

}  // namespace planner_test

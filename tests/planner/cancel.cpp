// SPDX-License-Identifier: Apache-2.0
// Searches on chains that are cancelled: at every ask, and soon, whatever part of a large one is going on.
#include <doctest/doctest.h>

#include <mdlm/chain.h>

#include <string>
#include <vector>

#include "draw.hpp"
#include "example.hpp"
#include "support/cancel.hpp"
#include "support/checks.hpp"

namespace planner_test {
namespace {

using mdlm_test::Canceller;
using namespace mdlm::planner;

// No stretch of layers is like another, and units nest.
Chain huge_chain(int64_t layers, int64_t tapes) {
    Random random(11);
    Chain c;
    c.in_flight = tapes, c.input_bytes = 1000, c.loss_bytes = 500, c.max_unit_depth = 3, c.max_unit_layers = 24;
    for (int64_t i = 0; i < layers; ++i) {
        LayerType t;
        t.boundary_bytes = 1000 + random.in(0, 99), t.grad_boundary_bytes = 1000 + random.in(0, 99);
        t.forward_ns = 100000 + random.in(0, 999), t.unsaved_forward_bytes = 5000 + random.in(0, 99);
        for (int64_t p = 0; p < 4; ++p) {
            PolicyCost q;
            q.saved_bytes = 1000 + 2000 * p + random.in(0, 499);
            q.extra_ns = p == 3 ? 0 : 3000 * (3 - p) * (3 - p) + random.in(0, 999);
            q.forward_bytes = q.saved_bytes + 6000, q.backward_bytes = q.saved_bytes + 9000;
            q.rebuild_ns = random.in(0, 99999);
            t.policies.push_back(q);
        }
        t.unit_inputs = {{"keep", 1000, 0, true}, {"share", 500, random.in(0, 999), false}};
        c.types.push_back(t);
        c.layers.push_back(static_cast<int32_t>(i));
    }
    return c;
}

struct Search {
    const char *name;
    bool all_budgets;
    mdlm_status operator()(const std::string &text, uint64_t budget, const mdlm_chain_options &options, char *buf,
                           size_t cap, size_t *length) const {
        return all_budgets ? mdlm_chain_frontier(text.data(), text.size(), &options, buf, cap, length)
                           : mdlm_chain_solve(text.data(), text.size(), budget, &options, buf, cap, length);
    }
};
constexpr Search searches[] = {{"mdlm_chain_solve", false}, {"mdlm_chain_frontier", true}};

}  // namespace

TEST_CASE("planner: a search that is cancelled at any of its asks writes nothing") {
    std::string texts[] = {example, write_chain(huge_chain(20, 1)), write_chain(huge_chain(12, 2))};
    for (const std::string &text : texts)
        for (const Search &search : searches) {
            CAPTURE(search.name);
            std::vector<char> plain(size_t{1} << 20), buf(plain.size(), 'x');
            size_t length = 0, written = 77;
            mdlm_chain_options options = MDLM_CHAIN_OPTIONS_INIT;
            REQUIRE_OK(search(text, 200000, options, plain.data(), plain.size(), &length));
            Canceller canceller;
            canceller.join(options);
            int64_t k = 1;
            for (;; k += 1 + k / 8) {
                CAPTURE(k);
                canceller.reset(k);
                mdlm_set_last_error("");
                const mdlm_status status = search(text, 200000, options, buf.data(), buf.size(), &written);
                if (status == MDLM_OK) break;
                CHECK_MESSAGE(status == MDLM_ERROR_CANCELLED, mdlm_test::said(status));
                const std::string line = std::string("cancelled: ") + search.name + ", ";
                CHECK(mdlm_test::wrong_with(mdlm_last_error(), line.c_str()) == "");
                CHECK(canceller.asks == k);
                CHECK(written == 77);
                CHECK(buf == std::vector<char>(plain.size(), 'x'));
            }
            CHECK(k > 1);  // one ask at least
            CHECK(written == length);
            CHECK(std::string(buf.data()) == plain.data());
        }
}

TEST_CASE("planner: a large search asks all along, a thousand times a second at most, and ends at once when told to") {
    // By the longest time between two asks, whatever the search is doing then. It is cancelled in the end.
    for (const auto &[layers, tapes] : {std::pair{300, 1}, {300, 2}, {3000, 1}, {3000, 2}}) {
        const std::string text = write_chain(huge_chain(layers, tapes));
        for (const Search &search : searches)
            for (const int64_t after_ms : {0, 200, 6000}) {
                if (after_ms > 200 && (layers < 3000 || tapes < 2)) continue;  // one that goes on for so long
                CAPTURE(layers);
                CAPTURE(tapes);
                CAPTURE(search.all_budgets);
                CAPTURE(after_ms);
                Canceller canceller;
                mdlm_chain_options options = MDLM_CHAIN_OPTIONS_INIT;
                canceller.join(options);
                Canceller::Clock::time_point last{};
                int64_t longest_us = 0;
                const auto us = [](auto d) { return std::chrono::duration_cast<std::chrono::microseconds>(d).count(); };
                canceller.inside = [&] {
                    const auto now = Canceller::Clock::now();
                    if (canceller.asks > 1) longest_us = std::max<int64_t>(longest_us, us(now - last));
                    last = now;
                    if (now - canceller.first >= std::chrono::milliseconds(after_ms)) canceller.flag = true;
                };
                mdlm_set_last_error("");
                const mdlm_status status = search(text, 4000000, options, nullptr, 0, nullptr);
                const auto end = Canceller::Clock::now();
                longest_us = std::max<int64_t>(longest_us, us(end - last));
                CAPTURE(us(end - canceller.first));
                CHECK(longest_us < 1000000);
                CHECK(canceller.asks <= us(end - canceller.first) / 1000 + 1);
                if (status == MDLM_OK && (layers == 300 || after_ms > 200)) continue;  // it was too fast
                CHECK_MESSAGE(status == MDLM_ERROR_CANCELLED, mdlm_test::said(status));
            }
    }
}

}  // namespace planner_test

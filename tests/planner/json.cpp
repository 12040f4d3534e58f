// SPDX-License-Identifier: Apache-2.0
// Chains from and to JSON: what is read is what was written, and every kind of bad text is refused in one line that
// names the place.
#include <doctest/doctest.h>

#include <cstring>

#include "draw.hpp"
#include "example.hpp"
#include "support/repro.hpp"

namespace planner_test {
namespace {

using namespace mdlm::planner;

std::string with(const std::string &from, const std::string &to) {
    std::string text = example;
    const size_t at = text.find(from);
    REQUIRE(at != std::string::npos);
    return text.replace(at, from.size(), to);
}

// "" when the text is refused with the status, in one line with all the words; otherwise what happened.
std::string wrong_with(const std::string &text, mdlm_status status, const std::vector<std::string> &words) {
    try {
        read_chain(text);
    } catch (const mdlm::Error &e) {
        const std::string line = e.what();
        if (e.status() != status) return std::string(mdlm_status_name(e.status())) + ": " + line;
        for (const std::string &word : words)
            if (line.find(word) == std::string::npos) return "'" + word + "' is not in: " + line;
        return line.find('\n') == std::string::npos ? "" : "more than one line: " + line;
    }
    return "it was taken";
}

// Never anything but a chain or an Error of one line.
std::string survives(const std::string &text) {
    try {
        const Chain c = read_chain(text);
        const Chain again = read_chain(write_chain(c));
        if (write_chain(again) != write_chain(c)) return "what was written reads otherwise";
        if (c.size() <= 8 && (c.max_unit_depth == 0 || c.size() <= 6)) solve(c, c.fixed_bytes + 30, 1000);
    } catch (const mdlm::Error &e) {
        if (e.status() != MDLM_ERROR_FORMAT && e.status() != MDLM_ERROR_OVERFLOW)
            return std::string(mdlm_status_name(e.status())) + ": " + e.what();
        if (*e.what() == 0 || std::strpbrk(e.what(), "\n\r") != nullptr)
            return std::string("not one line: ") + e.what();
    }
    return "";
}

Case round_trip(uint64_t seed) {
    Random random(seed);
    Sizes sizes;
    sizes.plans = 1e300;
    Case c{draw_chain(random, sizes), ""};
    c.chain.slab_apart = false;
    for (LayerType &t : c.chain.types)
        for (PolicyCost &p : t.policies) p.roles = role_any;
    const std::string text = write_chain(c.chain);
    const Chain again = read_chain(text);
    if (write_chain(again) != text) c.wrong = "it reads as " + write_chain(again);
    const int64_t budget = random.in(0, 100);
    if (to_json(c.chain, solve(c.chain, budget)) != to_json(again, solve(again, budget)))
        c.wrong = "its plan is another, budget " + std::to_string(budget);
    return c;
}

Case broken(uint64_t seed) {
    Random random(seed);
    static const char *const pieces[] = {"{",
                                         "}",
                                         "[",
                                         "]",
                                         ",",
                                         ":",
                                         "\"",
                                         "-",
                                         "1",
                                         "0",
                                         "null",
                                         "true",
                                         "1e5",
                                         "0.5",
                                         "99999999999999999999",
                                         "9223372036854775807",
                                         "-1",
                                         "\"policies\"",
                                         "\"layers\": [",
                                         "\"count\": 4097",
                                         "\\u0000",
                                         "\xff",
                                         "\"in_flight\": 2,",
                                         "{}",
                                         "[]",
                                         "\n",
                                         "\"keep\""};
    std::string text = example;
    for (int64_t edits = random.in(1, 4); edits > 0; --edits) {
        const auto at = static_cast<size_t>(random.in(0, static_cast<int64_t>(text.size())));
        const std::string piece = pieces[random.in(0, static_cast<int64_t>(std::size(pieces)) - 1)];
        switch (random.in(0, 4)) {
        case 0: text.resize(at); break;
        case 1: text.insert(at, piece); break;
        case 2: text.erase(at, static_cast<size_t>(random.in(1, 30))); break;
        case 3: {  // another value for a field
            const size_t colon = text.find(": ", at);
            if (colon != std::string::npos) text.replace(colon + 2, text.find_first_of(",}", colon) - colon - 2, piece);
            break;
        }
        default:
            if (at < text.size()) text[at] = static_cast<char>(random.in(0, 255));
        }
    }
    Case c;
    c.wrong = survives(text);
    if (!c.wrong.empty()) c.wrong += "\n" + text;
    return c;
}

constexpr const char *round_trip_name = "planner: chains are read as they were written";
constexpr const char *broken_name = "planner: broken chain files are refused in one line";

}  // namespace

TEST_CASE("planner: the example chain, field by field") {
    const Chain c = read_chain(example);
    CHECK(c.size() == 6);
    CHECK(c.in_flight == 1);
    CHECK(c.loss_bytes == 3);
    CHECK(c.input_bytes == 2);  // not said: the first layer's own boundary
    CHECK(c.max_unit_depth == 1);
    CHECK(c.max_unit_layers == 8);
    REQUIRE(c.types.size() == 1);
    const LayerType &t = c.types[0];
    CHECK(t.name == "decoder");
    CHECK(t.boundary_bytes == 2);
    CHECK(t.grad_boundary_bytes == 2);
    CHECK(t.forward_ns == 4);
    CHECK(t.unsaved_forward_bytes == 5);
    REQUIRE(t.policies.size() == 2);
    CHECK(t.policies[1].name == "X");
    CHECK(t.policies[0].saved_bytes == 10);
    CHECK(t.policies[1].extra_ns == 3);
    CHECK(t.policies[0].forward_bytes == 12);
    CHECK(t.policies[0].backward_bytes == 14);
    CHECK(t.policies[0].rebuild_ns == 3);
    REQUIRE(t.unit_inputs.size() == 1);
    CHECK(t.unit_inputs[0].name == "keep");
    CHECK(t.unit_inputs[0].saved_bytes == 2);
    CHECK(t.unit_inputs[0].restore_ns == 0);
    CHECK(t.unit_inputs[0].stays);
    CHECK(to_json(c, solve(c, 18)) ==
          R"({"feasible": true, "optimal": true, "gap_ns": 0, "peak_bytes": 18, "extra_ns": 27, )"
          R"("minimum_budget_bytes": 18, "plan": [)"
          R"({"unit": [0, 2], "input": "keep", "inner": [{"layer": 0, "policy": "X"}, {"layer": 1, "policy": "X"}, )"
          R"({"layer": 2, "policy": "A"}]}, )"
          R"({"unit": [3, 4], "input": "keep", "inner": [{"layer": 3, "policy": "X"}, {"layer": 4, "policy": "A"}]}, )"
          R"({"layer": 5, "policy": "A"}]})");
    CHECK(to_json(c, solve(c, 17)) == R"({"feasible": false, "minimum_budget_bytes": 18})");
    const std::string all = to_json(c, frontier(c));
    CHECK(all.find(R"({"frontier": [{"peak_bytes": 18, "extra_ns": 27, "plan": [{"unit": [0, 2])") == 0);
    // What may be left out, and what is then there.
    const Chain small =
        read_chain(R"({"version": 1, "layers": [{"policies": [{}, {}]}, {"policies": [{"name": "\"q\"\u00e9"}], )"
                   R"("count": 2}], "format": "mdlm-chain"})");
    CHECK(small.size() == 3);
    CHECK(small.in_flight == 1);
    CHECK(small.max_unit_depth == 0);
    CHECK(small.types[0].policies[1].name == "1");
    CHECK(to_json(small, solve(small, 0).plan) ==
          R"([{"layer": 0, "policy": "0"}, {"layer": 1, "policy": "\"q\"é"}, {"layer": 2, "policy": "\"q\"é"}])");
}

TEST_CASE("planner: faults of a chain file and the place that is named") {
    const struct {
        std::string text;
        mdlm_status status;
        std::vector<std::string> words;
    } faults[] = {
        {"", MDLM_ERROR_FORMAT, {"JSON"}},
        {"7", MDLM_ERROR_FORMAT, {"object"}},
        {"[]", MDLM_ERROR_FORMAT, {"object"}},
        {"null", MDLM_ERROR_FORMAT, {"object"}},
        {"{}", MDLM_ERROR_FORMAT, {"format", "missing"}},
        {std::string(example) + "{}", MDLM_ERROR_FORMAT, {"JSON"}},
        {std::string(100000, '['), MDLM_ERROR_FORMAT, {}},
        {with("mdlm-chain", "mdlm-plan"), MDLM_ERROR_FORMAT, {"format", "mdlm-plan", "mdlm-chain"}},
        {with("\"version\": 1", "\"version\": 2"), MDLM_ERROR_FORMAT, {"version", "2"}},
        {with("\"version\": 1,", ""), MDLM_ERROR_FORMAT, {"version", "missing"}},
        {with("\"version\": 1,", "\"version\": 1, \"version\": 1,"), MDLM_ERROR_FORMAT, {"version", "twice"}},
        {with("\"fixed_bytes\": 0", "\"fixed_bites\": 0"),
         MDLM_ERROR_FORMAT,
         {"fixed_bites", "unknown", "fixed_bytes"}},
        {with("\"loss_bytes\": 3", "\"loss_bytes\": -3"), MDLM_ERROR_FORMAT, {"loss_bytes", "-3"}},
        {with("\"loss_bytes\": 3", "\"loss_bytes\": 3.5"), MDLM_ERROR_FORMAT, {"loss_bytes", "3.5", "integer"}},
        {with("\"loss_bytes\": 3", "\"loss_bytes\": \"3\""), MDLM_ERROR_FORMAT, {"loss_bytes", "string", "integer"}},
        {with("\"loss_bytes\": 3", "\"loss_bytes\": null"), MDLM_ERROR_FORMAT, {"loss_bytes", "null"}},
        {with("\"loss_bytes\": 3", "\"loss_bytes\": [3]"), MDLM_ERROR_FORMAT, {"loss_bytes", "list"}},
        {with("\"loss_bytes\": 3", "\"loss_bytes\": 9223372036854775808"),
         MDLM_ERROR_OVERFLOW,
         {"loss_bytes", "9223372036854775808"}},
        {with("\"loss_bytes\": 3", "\"loss_bytes\": 123456789012345678901234567890"),
         MDLM_ERROR_OVERFLOW,
         {"loss_bytes", "12345678901"}},
        {with("\"loss_bytes\": 3", "\"loss_bytes\": 9223372036854775807"), MDLM_ERROR_OVERFLOW, {"2^6"}},
        {with("\"in_flight\": 1", "\"in_flight\": 0"), MDLM_ERROR_FORMAT, {"in_flight", "0"}},
        {with("\"in_flight\": 1", "\"in_flight\": 70000"), MDLM_ERROR_FORMAT, {"in_flight", "70000"}},
        {with("\"count\": 6", "\"count\": 0"), MDLM_ERROR_FORMAT, {"layers[0].count", "0"}},
        {with("\"count\": 6", "\"count\": 5000"), MDLM_ERROR_FORMAT, {"layers[0].count", "5000"}},
        {with("\"count\": 6", "\"number\": 6"), MDLM_ERROR_FORMAT, {"layers[0].", "number"}},
        {with("\"max_unit_layers\": 8", "\"max_unit_layers\": 100, \"max_unit_depth\": 1"),
         MDLM_ERROR_FORMAT,
         {"max_unit_depth", "twice"}},
        {with("\"saved_bytes\": 2, ", "\"saved_bytes\": -2, "),
         MDLM_ERROR_FORMAT,
         {"layers[0].policies[1].saved_bytes", "-2"}},
        {with("\"saved_bytes\": 10", "\"saved\": 10"), MDLM_ERROR_FORMAT, {"layers[0].policies[0].", "saved"}},
        {with("\"extra_ns\": 3", "\"extra_ns\": true"),
         MDLM_ERROR_FORMAT,
         {"layers[0].policies[1].extra_ns", "boolean"}},
        {with("\"stays\": true", "\"stays\": 1"),
         MDLM_ERROR_FORMAT,
         {"layers[0].unit_inputs[0].stays", "true or false"}},
        {with("\"restore_ns\": 0", "\"restore_ns\": {}"),
         MDLM_ERROR_FORMAT,
         {"layers[0].unit_inputs[0].restore_ns", "object"}},
        {with("\"name\": \"keep\"", "\"name\": 5"), MDLM_ERROR_FORMAT, {"layers[0].unit_inputs[0].name", "string"}},
        {with("\"name\": \"keep\"", "\"name\": \"a\\q\""), MDLM_ERROR_FORMAT, {"JSON"}},
        {R"({"format": "mdlm-chain", "version": 1, "layers": []})", MDLM_ERROR_FORMAT, {"layers", "none"}},
        {R"({"format": "mdlm-chain", "version": 1, "layers": [[]]})", MDLM_ERROR_FORMAT, {"layers", "list"}},
        {R"({"format": "mdlm-chain", "version": 1, "layers": [3]})", MDLM_ERROR_FORMAT, {"layers", "objects"}},
        {R"({"format": "mdlm-chain", "version": 1, "layers": {}})", MDLM_ERROR_FORMAT, {"layers", "object"}},
        {R"({"format": "mdlm-chain", "version": 1, "layers": [{"policies": [{}]}, {}]})",
         MDLM_ERROR_FORMAT,
         {"layers[1].policies", "missing"}},
        {R"({"format": "mdlm-chain", "version": 1, "layers": [{"policies": []}]})",
         MDLM_ERROR_FORMAT,
         {"layers[0].policies", "none"}},
        {R"({"format": "mdlm-chain", "version": 1, "layers": [{"policies": [{}], "count": 4000}, )"
         R"({"policies": [{}], "count": 4000}]})",
         MDLM_ERROR_FORMAT,
         {"layers", "4097"}},
        {R"({"format": "mdlm-chain", "version": 1, "max_unit_depth": 1, "max_unit_layers": 65, )"
         R"("layers": [{"policies": [{}], "count": 100}]})",
         MDLM_ERROR_FORMAT,
         {"max_unit_layers", "65"}},
        {R"({"format": "mdlm-chain", "version": 1, "layers": [{"policies": [)"
         R"({"saved_bytes": 4611686018427387904, "extra_ns": 4611686018427387904}], "count": 3}]})",
         MDLM_ERROR_OVERFLOW,
         {"2^6"}},
        {R"({"format": "mdlm-chain", "version": 1, "layers": [{"policies": [)"
         R"({"extra_ns": 4000000000000000}], "count": 1000}]})",
         MDLM_ERROR_OVERFLOW,
         {"ns", "2^61"}},
    };
    for (const auto &fault : faults) {
        CAPTURE(fault.text.substr(0, 900));
        CHECK(wrong_with(fault.text, fault.status, fault.words) == "");
    }
    // Every prefix is refused.
    for (size_t length = 0; length + 1 < std::strlen(example); ++length) {
        CAPTURE(length);
        CHECK(wrong_with(std::string(example, length), MDLM_ERROR_FORMAT, {"JSON"}) == "");
    }
}

TEST_CASE(round_trip_name) { for_seeds(round_trip_name, 0, 2000, round_trip); }
TEST_CASE(broken_name) { for_seeds(broken_name, 0, mdlm_test::sanitized ? 5000 : 30000, broken); }

}  // namespace planner_test

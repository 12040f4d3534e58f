// SPDX-License-Identifier: Apache-2.0
// Plans as JSON: round trips, hostile texts, and that no byte count in a text is believed.
#include <doctest/doctest.h>

#include <string>

#include "support/checks.hpp"
#include "support/rig.hpp"

using mdlm_test::Rig;

namespace {

std::string json_of(const mdlm_plan *plan) {
    size_t length = 0;
    REQUIRE_OK(mdlm_plan_to_json(plan, nullptr, 0, &length));
    std::string text(length + 1, 0);
    REQUIRE_OK(mdlm_plan_to_json(plan, text.data(), text.size(), nullptr));
    text.resize(length);
    return text;
}

std::string replaced(std::string text, const std::string &what, const std::string &with) {
    const size_t at = text.find(what);
    REQUIRE_MESSAGE(at != std::string::npos, what);
    return text.replace(at, what.size(), with);
}

struct Made {
    Rig rig{{"num_layers", "4"}, {"recompute_granularity", "selective"}};
    mdlm_plan *plan = nullptr;
    Made() {
        REQUIRE_OK(mdlm_plan_create(&rig.config, &rig.shape, nullptr, &plan));
        REQUIRE_OK(mdlm_plan_set_unit(plan, 1, 2));
        REQUIRE_OK(mdlm_plan_set(plan, 3, "mlp_act", MDLM_STORAGE_HOST));
        REQUIRE_OK(mdlm_plan_set(plan, 0, "input", MDLM_STORAGE_HOST));
    }
    ~Made() { mdlm_plan_destroy(plan); }
    mdlm_status read(const std::string &text, mdlm_plan **out) const {
        return mdlm_plan_from_json(&rig.config, &rig.shape, nullptr, text.data(), text.size(), out);
    }
    void refuses(const std::string &text, mdlm_status status, const char *word) const {
        mdlm_plan *none = nullptr;
        INFO(text.substr(0, 300));
        CHECK_FAILS(read(text, &none), status, word);
        CHECK(none == nullptr);
    }
};

}  // namespace

TEST_CASE("a plan comes back from its JSON as it was") {
    Made m;
    const std::string text = json_of(m.plan);
    mdlm_plan *again = nullptr;
    REQUIRE_OK(m.read(text, &again));
    CHECK(json_of(again) == text);
    mdlm_storage storage = -1;
    CHECK_OK(mdlm_plan_get(again, 3, "mlp_act", &storage));
    CHECK(storage == MDLM_STORAGE_HOST);
    CHECK_OK(mdlm_plan_get(again, 2, "input", &storage));
    CHECK(storage == MDLM_STORAGE_REPLAY);
    mdlm_plan_destroy(again);
}

TEST_CASE("byte counts in a plan's JSON are for people and not believed") {
    Made m;
    const std::string text = json_of(m.plan);
    const size_t at = text.find("\"peak_bytes\": ") + 14;
    std::string lying = text;
    lying.replace(at, text.find(',', at) - at, "1");
    mdlm_plan *again = nullptr;
    REQUIRE_OK(m.read(lying, &again));
    CHECK(json_of(again) == text);
    mdlm_plan_destroy(again);
}

TEST_CASE("a plan's JSON that is wrong in one place is refused, and the place is named") {
    Made m;
    const std::string text = json_of(m.plan);
    const auto F = MDLM_ERROR_FORMAT;
    m.refuses("", F, "not JSON");
    m.refuses("[]", F, "no array");
    m.refuses("3", F, "an object");
    m.refuses("{}", F, "format is missing");
    m.refuses(text + "x", F, "not JSON");
    m.refuses(replaced(text, "mdlm-plan", "other"), F, "format");
    m.refuses(replaced(text, "\"version\": 1", "\"version\": 2"), F, "version");
    m.refuses(replaced(text, "\"digest\": \"", "\"digest\": \"0"), F, "digest");
    m.refuses(replaced(text, "\"layer\": 1", "\"layer\": 2"), F, "layers[1].layer");
    m.refuses(replaced(text, "\"unit_first\": 1", "\"unit_first\": 0"), F, "layers[2].unit_first");
    m.refuses(replaced(text, "\"unit_first\": 3", "\"unit_first\": -3"), F, "layers[3].unit_first");
    m.refuses(replaced(text, "\"unit_first\": 0, ", ""), F, "layers[0].unit_first is missing");
    m.refuses(replaced(text, "\"mlp_act\"", "\"mlp_acts\""), F, "layers[0].mlp_acts");
    m.refuses(replaced(text, "\"mlp_act\": \"keep\"", "\"mlp_act\": \"kept\""), F, "layers[0].mlp_act");
    m.refuses(replaced(text, "\"mlp_act\": \"keep\"", "\"mlp_act\": 0"), F, "layers[0].mlp_act");
    m.refuses(replaced(text, "\"mlp_act\": \"keep\"", "\"mlp_act\": \"shard\""), MDLM_ERROR_CONFIG,
              "mlp_act of layer 0");
    m.refuses(replaced(text, "\"layers\"", "\"strata\""), F, "strata");
    m.refuses(replaced(text, "\"layers\": [", "\"layers\": [[["), F, "no array");
    m.refuses(replaced(text, "\"storage\": {", "\"storage\": {\"input\": {"), F, "no object");
    for (const char *number : {"5", "-5", "18446744073709551615"}) {  // where a layer should be
        m.refuses(replaced(text, ",\n  {", std::string(", ") + number + ",\n  {"), F, "an object, got a number");
        m.refuses(replaced(text, "\n]}", std::string(", ") + number + "\n]}"), F, "an object, got a number");
    }
    m.refuses(replaced(text, "\"saved_bytes\": ", "\"saved_bytes\": null, \"host_bytes\": "), F, "saved_bytes");
    const size_t last = text.rfind(",\n  {");
    m.refuses(text.substr(0, last) + "\n]}\n", F, "4 layers: expected 5");
    m.refuses(text.substr(0, text.rfind(']')) + text.substr(last, text.rfind(']') - last) + "]}", F, "as many layers");
}

TEST_CASE("every truncation and thousands of flipped bytes of a plan's JSON give a status and nothing else") {
    Made m;
    const std::string text = json_of(m.plan);
    int taken = 0, refused = 0;
    const auto attempt = [&](const std::string &t) {
        mdlm_plan *plan = nullptr;
        const mdlm_status s = m.read(t, &plan);
        CHECK((s == MDLM_OK || s == MDLM_ERROR_FORMAT || s == MDLM_ERROR_CONFIG));
        (s == MDLM_OK ? taken : refused) += 1;
        mdlm_plan_destroy(plan);
    };
    for (size_t n = 0; n + 2 < text.size(); n += 7) attempt(text.substr(0, n));
    CHECK(taken == 0);
    for (size_t i = 0; i < text.size(); i += 3)
        for (const char c : {'\0', '{', '9', '"'}) {
            std::string flipped = text;
            flipped[i] = c;
            attempt(flipped);
        }
    CHECK(refused > 100);
    attempt(std::string(200000, '['));
    attempt("{\"layers\": [" + std::string(200000, '{'));
}

TEST_CASE("a plan for another config or shape is refused") {
    Made m;
    const std::string text = json_of(m.plan);
    Made other;
    other.rig.shape.seq_length = 9;
    other.refuses(text, MDLM_ERROR_FORMAT, "digest");
    Made wider;
    REQUIRE_OK(mdlm_config_set(&wider.rig.config, "ffn_hidden_size", "32"));
    wider.refuses(text, MDLM_ERROR_FORMAT, "digest");
    Rig rig({{"num_layers", "3"}});
    REQUIRE_OK(mdlm_context_create(&rig.desc, &rig.context));
    REQUIRE_OK(mdlm_block_create(rig.context, &rig.config, &rig.block));
    CHECK_FAILS(mdlm_block_reserve(rig.block, &rig.shape, m.plan), MDLM_ERROR_CONFIG, "plan");
    CHECK_OK(mdlm_block_reserve(rig.block, &rig.shape, nullptr));
}

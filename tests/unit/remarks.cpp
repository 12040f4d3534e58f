// SPDX-License-Identifier: Apache-2.0
// What the context's log is told of settings that work, but hardly as their user meant them; and initial values of
// pipeline stages.
#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <string>
#include <vector>

#include "support/checks.hpp"
#include "support/rig.hpp"

using namespace mdlm_test;

namespace {

using Lines = std::vector<std::string>;
using Settings = std::vector<std::pair<const char *, const char *>>;

// What reserving and initialising a block says, after the line about the device.
Lines remarks_of(const Settings &settings, int32_t in_flight = 1, mdlm_status expected = MDLM_OK) {
    Lines lines;
    Rig rig({{"num_layers", "8"}});
    for (const auto &[key, value] : settings) REQUIRE_OK(mdlm_config_set(&rig.config, key, value));
    rig.desc.log = [](void *to, const char *line) { static_cast<Lines *>(to)->push_back(line); };
    rig.desc.log_payload = &lines;
    rig.shape.seq_length = 64;
    rig.shape.in_flight = in_flight;
    CHECK(rig.open() == expected);
    REQUIRE(!lines.empty());
    lines.erase(lines.begin());
    return lines;
}

bool names(const Lines &lines, const char *word) {
    return lines.size() == 1 && wrong_with(lines[0].c_str(), word).empty();
}

// A parameter's values, as some block of a model of 8 layers has them.
std::vector<float> initial(int64_t offset, int64_t count, int64_t total, const char *name) {
    Rig rig({{"num_layers", "8"}});
    rig.config.layer_offset = offset, rig.config.num_layers = count, rig.config.total_num_layers = total;
    REQUIRE_OK(rig.open());
    int64_t index = 0;
    mdlm_param_desc info = MDLM_PARAM_DESC_INIT;
    REQUIRE_OK(mdlm_param_find(rig.block, name, &index));
    REQUIRE_OK(mdlm_param_info(rig.block, index, &info));
    std::vector<float> values(info.bytes / sizeof(float));
    REQUIRE_OK(mdlm_param_read(rig.block, index, nullptr, nullptr, nullptr, MDLM_DTYPE_F32, values.data(), info.bytes));
    return values;
}

}  // namespace

TEST_CASE("initial values do not depend on how the model is cut into stages") {
    for (const char *name : {"layers.4.mlp.linear_fc2.weight", "layers.4.self_attention.linear_proj.weight",
                             "layers.5.mlp.linear_fc1.weight"}) {
        CAPTURE(name);
        const std::vector<float> whole = initial(0, 8, 0, name);
        CHECK(initial(4, 2, 8, name) == whole);
        CHECK(initial(4, 4, 0, name) == whole);  // the last stage needs no telling
        CHECK(initial(3, 3, 8, name) == whole);
        CHECK(initial(0, 6, 8, name) == whole);
        double squares = 0;
        for (float v : whole) squares += double(v) * v;
        const bool output = std::string(name).find("linear_fc1") == std::string::npos;
        const double expected = output ? 0.02 / std::sqrt(16.0) : 0.02;
        CHECK(std::sqrt(squares / double(whole.size())) == doctest::Approx(expected).epsilon(0.1));
    }
}

TEST_CASE("a stage without total_num_layers is remarked on, where initial values depend on it") {
    CHECK(remarks_of({}).empty());
    CHECK(names(remarks_of({{"layer_offset", "4"}}), "total_num_layers"));
    CHECK(names(remarks_of({{"layer_offset", "4"}}), "layer_offset = 4"));
    CHECK(remarks_of({{"layer_offset", "4"}, {"total_num_layers", "12"}}).empty());
    CHECK(remarks_of({{"layer_offset", "4"}, {"output_init_std", "0.01"}}).empty());
    CHECK(remarks_of({{"layer_offset", "4"}, {"init_method_std", "0"}}).empty());
}

TEST_CASE("plans that cost time and save next to nothing are remarked on") {
    const auto full = [](const char *method, const char *count) {
        return Settings{
            {"recompute_granularity", "full"}, {"recompute_method", method}, {"recompute_num_layers", count}};
    };
    CHECK(names(remarks_of(full("uniform", "8")), "one unit holds all 8 layers"));
    CHECK(names(remarks_of(full("uniform", "8"), 3), "one unit holds all 8 layers"));
    CHECK(remarks_of(full("uniform", "2")).empty());
    CHECK(remarks_of(full("uniform", "1")).empty());
    CHECK(remarks_of(full("block", "8")).empty());
    // Outputs of norms: hardly a byte in a hundred, of a layer that is mostly linear_fc1.
    const Settings norms = {
        {"recompute_granularity", "selective"}, {"recompute_modules", "layernorm"}, {"ffn_hidden_size", "4096"}};
    CHECK(names(remarks_of(norms), "saves next to nothing"));
    CHECK(names(remarks_of(norms), "replays 16 ops"));
    CHECK(
        remarks_of({{"recompute_granularity", "selective"}, {"recompute_modules", "mlp"}, {"ffn_hidden_size", "4096"}})
            .empty());
    CHECK(remarks_of({{"cpu_offloading", "1"}, {"cpu_offloading_num_layers", "8"}}).empty());
    Settings offloaded = {{"num_layers", "1"}, {"cpu_offloading", "1"}, {"cpu_offloading_num_layers", "1"}};
    CHECK(names(remarks_of(offloaded), "moves saved tensors"));
}

TEST_CASE("nobody hears a remark on what was refused") {
    CHECK(remarks_of({{"recompute_granularity", "full"},
                      {"recompute_method", "uniform"},
                      {"recompute_num_layers", "8"},
                      {"params_dtype", "bf16"}},
                     70000, MDLM_ERROR_SHAPE)
              .empty());
}

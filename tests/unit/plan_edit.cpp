// SPDX-License-Identifier: Apache-2.0
// Changing plans: what can be set, what is refused, and what settings make of them.
#include <doctest/doctest.h>

#include <string>

#include "support/checks.hpp"
#include "support/rig.hpp"

using mdlm_test::Rig;

namespace {

struct Edited {
    Rig rig;
    mdlm_plan *plan = nullptr;
    explicit Edited(std::initializer_list<std::pair<const char *, const char *>> settings) : rig(settings) {
        REQUIRE(rig.good_settings);
        REQUIRE_OK(mdlm_plan_create(&rig.config, &rig.shape, nullptr, &plan));
    }
    ~Edited() { mdlm_plan_destroy(plan); }
    mdlm_storage at(int64_t layer, const char *tensor) const {
        mdlm_storage s = -1;
        REQUIRE_OK(mdlm_plan_get(plan, layer, tensor, &s));
        return s;
    }
    // "0-1 2-3 4": the units of all layers.
    std::string units() const {
        std::string text;
        mdlm_plan_layer info = MDLM_PLAN_LAYER_INIT;
        for (int64_t i = 0; i < rig.config.num_layers; i += info.unit_count) {
            REQUIRE_OK(mdlm_plan_get_layer(plan, i, &info));
            REQUIRE(info.unit_first == i);
            text += (i > 0 ? " " : "") + std::to_string(i) +
                    (info.unit_count > 1 ? "-" + std::to_string(i + info.unit_count - 1) : "");
        }
        return text;
    }
    uint64_t peak() const {
        mdlm_memory m = MDLM_MEMORY_INIT;
        REQUIRE_OK(mdlm_plan_memory(plan, &m));
        return m.peak_bytes;
    }
};

}  // namespace

TEST_CASE("settings become units and policies") {
    const Edited none({{"num_layers", "5"}});
    CHECK(none.units() == "0 1 2 3 4");
    CHECK(none.at(0, "mlp_act") == MDLM_STORAGE_KEEP);
    CHECK(none.at(5, "input") == MDLM_STORAGE_KEEP);
    const Edited uniform({{"num_layers", "5"},
                          {"recompute_granularity", "full"},
                          {"recompute_method", "uniform"},
                          {"recompute_num_layers", "2"}});
    CHECK(uniform.units() == "0-1 2-3 4");  // the last one is shorter
    CHECK(uniform.at(0, "input") == MDLM_STORAGE_KEEP);
    CHECK(uniform.at(1, "input") == MDLM_STORAGE_REPLAY);
    CHECK(uniform.at(4, "linear_qkv") == MDLM_STORAGE_REPLAY);
    const Edited block({{"num_layers", "5"},
                        {"recompute_granularity", "full"},
                        {"recompute_method", "block"},
                        {"recompute_num_layers", "2"}});
    CHECK(block.units() == "0 1 2 3 4");
    CHECK(block.at(1, "linear_fc1") == MDLM_STORAGE_REPLAY);
    CHECK(block.at(2, "linear_fc1") == MDLM_STORAGE_KEEP);
    const Edited selective({{"num_layers", "2"}, {"recompute_granularity", "selective"}});
    CHECK(selective.at(0, "linear_qkv") == MDLM_STORAGE_REPLAY);
    CHECK(selective.at(0, "core_attn") == MDLM_STORAGE_REPLAY);
    CHECK(selective.at(0, "linear_fc1") == MDLM_STORAGE_KEEP);
    const Edited host({{"num_layers", "3"}, {"cpu_offloading", "1"}, {"cpu_offloading_num_layers", "2"}});
    CHECK(host.at(1, "mlp_act") == MDLM_STORAGE_HOST);
    CHECK(host.at(2, "mlp_act") == MDLM_STORAGE_KEEP);
    const Edited full_host({{"num_layers", "3"},
                            {"recompute_granularity", "full"},
                            {"cpu_offloading", "1"},
                            {"cpu_offloading_num_layers", "3"}});
    CHECK(full_host.at(2, "input") == MDLM_STORAGE_HOST);
    CHECK(full_host.at(2, "mlp_act") == MDLM_STORAGE_REPLAY);
    CHECK(none.peak() > block.peak());
    CHECK(block.peak() > uniform.peak());
}

TEST_CASE("units can be set over any others, and cut ones fall apart") {
    Edited e({{"num_layers", "6"},
              {"recompute_granularity", "full"},
              {"recompute_method", "uniform"},
              {"recompute_num_layers", "3"}});
    CHECK(e.units() == "0-2 3-5");
    CHECK_OK(mdlm_plan_set_unit(e.plan, 2, 2));
    CHECK(e.units() == "0 1 2-3 4 5");
    CHECK(e.at(3, "input") == MDLM_STORAGE_REPLAY);
    CHECK(e.at(4, "input") == MDLM_STORAGE_KEEP);
    CHECK_OK(mdlm_plan_set_unit(e.plan, 0, 6));
    CHECK(e.units() == "0-5");
    CHECK_OK(mdlm_plan_set_unit(e.plan, 5, 1));
    CHECK(e.units() == "0 1 2 3 4 5");
    CHECK_FAILS(mdlm_plan_set_unit(e.plan, 5, 2), MDLM_ERROR_ARGUMENT, "6 layers");
    CHECK_FAILS(mdlm_plan_set_unit(e.plan, -1, 1), MDLM_ERROR_ARGUMENT, "-1");
    CHECK_FAILS(mdlm_plan_set_unit(e.plan, 0, 0), MDLM_ERROR_ARGUMENT, "0 layers");
    CHECK_FAILS(mdlm_plan_set_unit(e.plan, INT64_MAX, INT64_MAX), MDLM_ERROR_ARGUMENT, "unit");
}

TEST_CASE("a storage that a tensor cannot have is refused, and the plan stays as it was") {
    Edited e({{"num_layers", "4"}});
    REQUIRE_OK(mdlm_plan_set_unit(e.plan, 1, 2));
    const uint64_t peak = e.peak();
    CHECK_FAILS(mdlm_plan_set(e.plan, 0, "input", MDLM_STORAGE_REPLAY), MDLM_ERROR_CONFIG, "keep, shard or host");
    CHECK_FAILS(mdlm_plan_set(e.plan, 0, "input", MDLM_STORAGE_SHARD), MDLM_ERROR_CONFIG, "tensor_model_parallel_size");
    CHECK_FAILS(mdlm_plan_set(e.plan, 2, "input", MDLM_STORAGE_KEEP), MDLM_ERROR_CONFIG, "inside a unit");
    CHECK_FAILS(mdlm_plan_set(e.plan, 1, "mlp_act", MDLM_STORAGE_HOST), MDLM_ERROR_CONFIG, "inside a unit");
    CHECK_FAILS(mdlm_plan_set(e.plan, 0, "mlp_act", MDLM_STORAGE_SHARD), MDLM_ERROR_CONFIG, "input of a unit");
    CHECK_FAILS(mdlm_plan_set(e.plan, 0, "mlp_act", 7), MDLM_ERROR_ARGUMENT, "storage = 7");
    CHECK_FAILS(mdlm_plan_set(e.plan, 0, "output", MDLM_STORAGE_KEEP), MDLM_ERROR_NOT_FOUND, "output");
    CHECK_FAILS(mdlm_plan_set(e.plan, 4, "mlp_act", MDLM_STORAGE_KEEP), MDLM_ERROR_NOT_FOUND, "mlp_act");
    CHECK_FAILS(mdlm_plan_set(e.plan, 5, "input", MDLM_STORAGE_KEEP), MDLM_ERROR_ARGUMENT, "layer = 5");
    CHECK_FAILS(mdlm_plan_set(e.plan, -2, "input", MDLM_STORAGE_KEEP), MDLM_ERROR_ARGUMENT, "layer = -2");
    CHECK(e.peak() == peak);
    CHECK_OK(mdlm_plan_set(e.plan, -1, "mlp_act", MDLM_STORAGE_REPLAY));
    CHECK(e.at(3, "mlp_act") == MDLM_STORAGE_REPLAY);
    CHECK(e.peak() < peak);
}

TEST_CASE("tensors of a layer can be listed") {
    Edited e({{"num_layers", "1"}, {"attention_backend", "unfused"}});
    std::string all;
    for (int32_t i = 0; mdlm_plan_tensor(e.plan, 0, i) != nullptr; ++i)
        all += std::string(mdlm_plan_tensor(e.plan, 0, i)) + " ";
    CHECK(all == "input input_layernorm linear_qkv rotated_qk attention_scores attention_probs core_attn linear_proj "
                 "attention_residual "
                 "pre_mlp_layernorm linear_fc1 mlp_act linear_fc2 ");
    CHECK(std::string(mdlm_plan_tensor(e.plan, 1, 0)) == "input");
    CHECK(mdlm_plan_tensor(e.plan, 1, 1) == nullptr);
    CHECK(mdlm_plan_tensor(e.plan, 0, -1) == nullptr);
    CHECK(mdlm_plan_tensor(e.plan, 2, 0) == nullptr);
}

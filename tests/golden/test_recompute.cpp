// SPDX-License-Identifier: Apache-2.0
// Every recompute setting gives the bits of none.
#include <doctest/doctest.h>

#include "golden_support.hpp"
#include "support/repro.hpp"

namespace golden {
namespace {

struct Setting {
    std::string name;
    SettingsOnTop settings;
};

std::vector<Setting> recompute_settings(int64_t num_layers) {
    const std::string all = std::to_string(num_layers);
    std::vector<Setting> list = {
        {"selective", {{"recompute_granularity", "selective"}}},
        {"full", {{"recompute_granularity", "full"}}},
        {"offloading", {{"cpu_offloading", "true"}, {"cpu_offloading_num_layers", all}}},
        {"full, offloading",
         {{"recompute_granularity", "full"}, {"cpu_offloading", "true"}, {"cpu_offloading_num_layers", all}}},
        {"selective, one layer offloading",
         {{"recompute_granularity", "selective"}, {"cpu_offloading", "true"}, {"cpu_offloading_num_layers", "1"}}},
    };
    for (const char *modules : {"core_attn", "qkv", "qk_norm_rope", "layernorm", "mlp_act", "mlp",
                                "layernorm,qk_norm_rope,mlp_act", "core_attn,qkv,qk_norm_rope,layernorm,mlp_act,mlp"})
        list.push_back({std::string("selective ") + modules,
                        {{"recompute_granularity", "selective"}, {"recompute_modules", modules}}});
    const auto full = [&](const char *method, int64_t count) {
        if (count > num_layers) return;
        list.push_back({std::string("full ") + method + " " + std::to_string(count),
                        {{"recompute_granularity", "full"},
                         {"recompute_method", method},
                         {"recompute_num_layers", std::to_string(count)}}});
    };
    full("uniform", 1);
    full("uniform", 2);  // with three layers, the last unit is shorter
    if (num_layers > 1) {
        list.push_back(list.back());
        list.back().name += ", offloading";
        list.back().settings.insert(list.back().settings.end(),
                                    {{"cpu_offloading", "true"}, {"cpu_offloading_num_layers", all}});
    }
    if (num_layers > 2) full("uniform", num_layers);
    full("block", 1);
    if (num_layers > 1) full("block", num_layers);
    return list;
}

void expect_same_bits(const Place &place, const char *dtype, const char *backend) {
    const SettingsOnTop base = {{"params_dtype", dtype}, {"attention_backend", backend}};
    for (const std::string &name : case_names()) {
        const mdlm::tools::Outcome none = run(name, place.kind, base);
        const mdlm_config config = mdlm::tools::config_of(case_named(name));
        for (const Setting &setting : recompute_settings(config.num_layers)) {
            SettingsOnTop settings = base;
            settings.insert(settings.end(), setting.settings.begin(), setting.settings.end());
            CAPTURE(std::string(place.name));
            CAPTURE(std::string(dtype));
            CAPTURE(std::string(backend));
            CAPTURE(name);
            CAPTURE(setting.name);
            CHECK(difference(none, run(name, place.kind, settings)) == "");
        }
    }
}

}  // namespace

TEST_CASE("golden: on a late device every setting has the cpu's bits") {
    for (const char *backend : {"fused", "unfused"})
        for (const char *dtype : {"f32", "bf16"})
            for (const std::string &name : case_names()) {
                const mdlm_config config = mdlm::tools::config_of(case_named(name));
                const SettingsOnTop base = {{"params_dtype", dtype}, {"attention_backend", backend}};
                const mdlm::tools::Outcome expected = run(name, MDLM_DEVICE_CPU, base);
                CAPTURE(std::string(dtype));
                CAPTURE(std::string(backend));
                CAPTURE(name);
                CHECK(difference(expected, run(name, late, base)) == "");
                for (const Setting &setting : recompute_settings(config.num_layers)) {
                    SettingsOnTop settings = base;
                    settings.insert(settings.end(), setting.settings.begin(), setting.settings.end());
                    CAPTURE(setting.name);
                    CHECK(difference(expected, run(name, late, settings)) == "");
                }
            }
}

TEST_CASE("golden: recompute settings give the bits of none on the cpu") {
    for (const char *backend : {"fused", "unfused"})
        for (const char *dtype : {"f32", "bf16"}) expect_same_bits(places[0], dtype, backend);
}

TEST_CASE("golden: recompute settings give the bits of none on the reference") {
    int number = 0;
    for (const char *backend : {"fused", "unfused"})
        for (const char *dtype : {"f32", "bf16", "f64"}) {
            if (mdlm_test::sanitized && number++ % 2 != 0) continue;  // every dtype once, both backends
            expect_same_bits(places[1], dtype, backend);
        }
}

}  // namespace golden

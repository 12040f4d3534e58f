// SPDX-License-Identifier: Apache-2.0
// Text does not follow the host's locale: plans, settings, tables and errors have a point where its numbers have a
// comma.
#include <mdlm/chain.h>

#include <doctest/doctest.h>

#include <locale.h>
#if defined(__SANITIZE_ADDRESS__)
#include <sanitizer/lsan_interface.h>
#endif

#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <string>
#include <vector>

#include "support/checks.hpp"
#include "support/repro.hpp"
#include "support/rig.hpp"

using namespace mdlm_test;

namespace {

// What glibc keeps of LOCPATH when it makes a locale is not the library's leak.
template <class Make>
auto kept_by_libc(Make &&make) {
#if defined(__SANITIZE_ADDRESS__)
    const __lsan::ScopedDisabler disabled;
#endif
    return make();
}

// A locale with a comma and groups of three, made here: test machines have none but C.
struct Comma {
    std::string folder;
    locale_t locale = nullptr;
    Comma() {
        char name[] = "/tmp/mdlm-locale-XXXXXX";
        folder = mkdtemp(name);
        const std::string make = "localedef -i de_DE -f ISO-8859-1 " + folder + "/comma >/dev/null 2>&1";
        if (std::system(make.c_str()) >= 0) setenv("LOCPATH", folder.c_str(), 1);
        locale = kept_by_libc([] { return newlocale(LC_ALL_MASK, "comma", nullptr); });
    }
    ~Comma() {
        if (locale != nullptr) freelocale(locale);
        unsetenv("LOCPATH");
        std::filesystem::remove_all(folder);
    }
};

// The line of an error.
std::string told(mdlm_status status) { return status == MDLM_OK ? "" : said(status); }

template <class Write>
std::string text_of(Write &&write) {
    char text[16384] = "";
    size_t length = 0;
    const mdlm_status status = write(text, sizeof text, &length);
    return status == MDLM_OK ? text : said(status);
}

// Everything that the library writes with numbers in it, and errors with such.
std::vector<std::string> texts() {
    std::vector<std::string> all;
    Rig rig({{"num_layers", "4"},
             {"hidden_size", "1024"},
             {"num_attention_heads", "8"},
             {"recompute_granularity", "selective"},
             {"layernorm_epsilon", "1.5e-5"},
             {"softmax_scale", "0.125"}});
    rig.shape.seq_length = 2048;
    all.push_back(told(mdlm_plan_create(&rig.config, &rig.shape, nullptr, &rig.plan)));
    all.push_back(text_of([&](char *buf, size_t cap, size_t *n) { return mdlm_plan_print(rig.plan, buf, cap, n); }));
    all.push_back(text_of([&](char *buf, size_t cap, size_t *n) { return mdlm_plan_to_json(rig.plan, buf, cap, n); }));
    for (int32_t i = 0; i < mdlm_config_key_count(); ++i)
        all.push_back(text_of([&](char *buf, size_t cap, size_t *n) {
            return mdlm_config_get(&rig.config, mdlm_config_key(i), buf, cap, n);
        }));
    for (int32_t i = 0; mdlm_device_table_name(i) != nullptr; ++i)
        all.push_back(text_of([&](char *buf, size_t cap, size_t *n) {
            return mdlm_device_table(mdlm_device_table_name(i), buf, cap, n);
        }));
    mdlm_config c = rig.config;
    all.push_back(told(mdlm_config_set(&c, "hidden_dropout", "0.25")));
    all.push_back(told(mdlm_config_set(&c, "hidden_dropout", "0,25")));
    all.push_back(told(mdlm_config_set(&c, "memory_budget", "1.5GiB")));
    all.push_back(std::to_string(c.memory_budget) + " " + std::to_string(c.hidden_dropout == 0.25));
    c.hidden_dropout = 1.5, c.rotary_percent = 0.0005, c.layernorm_epsilon = -0.5;
    all.push_back(told(mdlm_config_validate(&c)));
    c = rig.config, c.rotary_percent = 0.0234375;  // turns 3 channels
    all.push_back(told(mdlm_config_validate(&c)));
    const std::string chain = "{\"format\": \"mdlm-chain\", \"version\": 1.5}",
                      table = "{\"format\": \"mdlm-device-table\", \"op_ns\": 1.5}";
    all.push_back(told(mdlm_chain_solve(chain.data(), chain.size(), 1, nullptr, nullptr, 0, nullptr)));
    all.push_back(
        text_of([&](char *buf, size_t cap, size_t *n) { return mdlm_device_table(table.c_str(), buf, cap, n); }));
    rig.shape.max_bytes = 1;
    rig.config.memory_budget = 1;
    rig.config.recompute_granularity = MDLM_RECOMPUTE_GRANULARITY_NONE;
    mdlm_plan *plan = nullptr;
    all.push_back(told(mdlm_plan_create(&rig.config, &rig.shape, nullptr, &plan)));
    return all;
}

}  // namespace

TEST_CASE("locale: what is written and read does not follow it, set for the process or for a thread") {
    const std::vector<std::string> plain = texts();
    CHECK(plain[1].find("MiB") != std::string::npos);
    CHECK(plain[1].find(".") != std::string::npos);
    Comma comma;
    if (comma.locale == nullptr) {
        skip("because no locale with a comma could be made (Debian: locales)");
        return;
    }
    char number[16];
    const locale_t before = uselocale(comma.locale);
    std::snprintf(number, sizeof number, "%.1f", 1.5);
    const std::vector<std::string> of_thread = texts();
    uselocale(before);
    CHECK(std::string(number) == "1,5");
    for (size_t i = 0; i < plain.size(); ++i) CHECK(of_thread[i] == plain[i]);

    REQUIRE(kept_by_libc([] { return setlocale(LC_ALL, "comma"); }) != nullptr);
    const std::vector<std::string> of_process = texts();
    setlocale(LC_ALL, "C");
    for (size_t i = 0; i < plain.size(); ++i) CHECK(of_process[i] == plain[i]);
}

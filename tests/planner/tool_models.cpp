// SPDX-License-Identifier: Apache-2.0
// The program: mdlm plan for devices and models by name, and what it refuses.
#include <cmath>
#include <filesystem>
#include <fstream>
#include <map>
#include <nlohmann/json.hpp>
#include <set>
#include <sstream>

#include "block_flags.hpp"
#include "mdlm/mdlm.h"

namespace planner_test {

TEST_CASE("mdlm plan: device tables by name and from a file") {
    size_t length = 0;
    REQUIRE(mdlm_device_table("H100", nullptr, 0, &length) == MDLM_OK);
    std::string text(length + 1, '\0');
    REQUIRE(mdlm_device_table("H100", text.data(), text.size(), nullptr) == MDLM_OK);
    text.resize(length);
    const File file(text), bad("{\"format\": 1}");
    const std::vector<std::string> budget = {"--budget", "100MB"};
    const json named = answer(small + budget + std::vector<std::string>{"--device-table", "H100"});
    CHECK(answer(small + budget + std::vector<std::string>{"--device-table", file.path}) == named);
    CHECK(named["forward_ns"] < answer(small + budget)["forward_ns"]);
    expect_refused(run(small + budget + std::vector<std::string>{"--device-table", bad.path}), "format");
    expect_refused(run(small + budget + std::vector<std::string>{"--device-table", "H300"}), "H300");
    const Ended measured = run({"--calibrate", "--threads", "1"});
    CHECK(measured.status == 0);
    CHECK(mdlm_device_table(measured.out.c_str(), nullptr, 0, nullptr) == MDLM_OK);
}

TEST_CASE("mdlm plan: models by name") {
    struct Shape {
        const char *name;
        int layers;
        double parameters;  // of all layers, in 10^9
        double bytes = 2;   // of each
    };
    for (const Shape &m : {Shape{"gpt2", 12, 0.0851, 4}, Shape{"megadlms-1.7b", 28, 1.53}, Shape{"gpt3-22b", 48, 21.7},
                           Shape{"gpt3-175b", 96, 174}, Shape{"llama-8b", 32, 6.98}, Shape{"llama-70b", 80, 68.5},
                           Shape{"30b", 48, 29.6}}) {
        INFO(m.name);
        const json a = answer({"--model", m.name, "--device-table", "H100", "--budget", "10TiB"});
        CHECK(a["extra_ns"] == 0);
        CHECK(a["plan"]["num_layers"] == m.layers);
        CHECK(a["parameter_bytes"].get<double>() / (1e9 * m.bytes) == doctest::Approx(m.parameters).epsilon(0.01));
    }
    expect_refused(run({"--model", "31b", "--budget", "1GiB"}), "expected one of gpt2, megadlms-1.7b");
}

TEST_CASE("mdlm plan: the article's claim, in Megatron's accounting and in ours") {
    const json a = answer({"--article"});
    const double sbh = 2048.0 * 3 * 7168, layers = 48, t = 8;
    const auto bytes = [](const json &row, const char *key) { return row[key].get<double>(); };
    for (const char *backend : {"unfused", "fused"}) {
        INFO(backend);
        const bool unfused = backend[0] == 'u';
        const json &rows = a[backend];
        REQUIRE(rows.size() == 6);
        CHECK(bytes(rows[0], "megatron_bytes") == doctest::Approx(layers * sbh * (unfused ? 114 : 34) / t));
        CHECK(bytes(rows[1], "megatron_bytes") == doctest::Approx(layers * sbh * 34 / t));
        CHECK(bytes(rows[4], "megatron_bytes") == doctest::Approx(layers * sbh * 2 / t));
        // In ours 64, 32 with Megatron's selective, which keeps the context, 30 without that, and 2 sbh (32 for the
        // first with fused attention), and the final norm's input; statistics and rounding are on top.
        CHECK(bytes(rows[0], "saved_bytes") ==
              doctest::Approx((layers * (unfused ? 64 : 32) + 2) * sbh / t).epsilon(0.01));
        CHECK(bytes(rows[1], "saved_bytes") == doctest::Approx((layers * 32 + 2) * sbh / t).epsilon(0.01));
        CHECK(bytes(rows[2], "saved_bytes") == doctest::Approx((layers * 30 + 2) * sbh / t).epsilon(0.01));
        CHECK(bytes(rows[4], "saved_bytes") == doctest::Approx((layers + 1) * 2 * sbh / t).epsilon(0.01));
        CHECK(bytes(rows[5], "peak_bytes") <= 10e9);
        CHECK(bytes(rows[5], "extra_ns") < bytes(rows[2], "extra_ns"));
    }
    CHECK(run({"--article"}).out.find("30.1 to 9.0 GB, 70 % less: the claim holds") != std::string::npos);
}

TEST_CASE("mdlm plan: what cannot be asked of a block") {
    expect_refused(run({}), "a block by --model or flags");
    expect_refused(run(small), "expected --budget, --sweep or recompute flags, seen none");
    expect_refused(run(small + std::vector<std::string>{"--budget", "1GiB", "--sweep"}), "seen both");
    expect_refused(run(small + std::vector<std::string>{"--budget", "0"}), "at least 1 byte");
    expect_refused(run(small + std::vector<std::string>{"--budget", "1GiB", "--recompute-granularity", "full"}),
                   "excludes recompute_granularity = full");
    expect_refused(run(small + std::vector<std::string>{"--chain", "-", "--budget", "1"}), "no flag of a block");
    expect_refused(run(small + std::vector<std::string>{"--budget", "1GiB", "--seq-length", "x"}), "--seq-length");
    expect_refused(run(small + std::vector<std::string>{"--budget", "1GiB", "--no-such"}), "--no-such");
    expect_refused(run({"--num-layers", "2", "--budget", "1GiB"}), "hidden_size");
    expect_refused(run(small + std::vector<std::string>{"--sweep", "--svg", "/no/such/folder/x.svg"}),
                   "/no/such/folder/x.svg");
    expect_refused(run({"--article", "--sweep"}), "neither --budget nor --sweep");
}

}  // namespace planner_test

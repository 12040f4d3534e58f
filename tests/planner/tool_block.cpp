// SPDX-License-Identifier: Apache-2.0
// The program: mdlm plan for blocks.
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

TEST_CASE("mdlm plan: a budget for a block, and Megatron's best beside it") {
    const json all = answer(small + std::vector<std::string>{"--budget", "1TiB"});
    CHECK(all["extra_ns"] == 0);
    CHECK(all["megatron"]["setting"] == "none");
    const int64_t most = all["peak_bytes"], least = all["minimum_budget_bytes"];
    CHECK(least < most);
    for (const int64_t budget : {least, (least + most) / 2, most - 1, most}) {
        const json a = answer(small + std::vector<std::string>{"--budget", std::to_string(budget)});
        CHECK(a["budget_bytes"] == budget);
        CHECK(a["peak_bytes"] <= budget);
        CHECK(a["optimal"] == true);
        CHECK(a["gap_ns"] == 0);
        CHECK(a["plan"]["layers"].size() == 7);
        CHECK(a["plan"]["peak_bytes"] == a["peak_bytes"]);
        for (const char *named : {"megatron", "modules"}) {
            if (a[named].is_null()) continue;
            CHECK(a[named]["peak_bytes"] <= budget);
            CHECK(a[named]["extra_ns"] >= a["extra_ns"]);
        }
    }
    const Ended text = run(small + std::vector<std::string>{"--budget", std::to_string((least + most) / 2)});
    CHECK(text.status == 0);
    for (const char *word : {"the least that is possible", "Megatron ", "modules  selective ",
                             "flags: --recompute-granularity", "plan: 6 layers", "final norm", "keep input"})
        CHECK(text.out.find(word) != std::string::npos);
    expect_refused(run(small + std::vector<std::string>{"--budget", std::to_string(least - 1)}), std::to_string(least));
    // The flag of the config is the same.
    CHECK(answer(small + std::vector<std::string>{"--memory-budget", "1TiB"}) == all);
    const json with =
        answer(small + std::vector<std::string>{"--budget", "1TiB", "--memory-budget-includes-parameters"});
    CHECK(with["minimum_budget_bytes"].get<int64_t>() ==
          least + with["parameter_bytes"].get<int64_t>() + with["gradient_bytes"].get<int64_t>());
}

TEST_CASE("mdlm plan: a sweep over a block's budgets") {
    const File svg("");
    const json a = answer(small + std::vector<std::string>{"--sweep", "--svg", svg.path});
    const json &points = a["frontier"];
    REQUIRE(points.size() > 20);
    for (size_t i = 1; i < points.size(); ++i) {
        CHECK(points[i]["peak_bytes"] > points[i - 1]["peak_bytes"]);
        CHECK(points[i]["extra_ns"] < points[i - 1]["extra_ns"]);
    }
    CHECK(a["megatron"].size() >= 12);  // none, mlp, uniform and block: 1 .. 6, of which two are the same
    CHECK(a["modules"].size() > 20);
    // No setting lies below the line.
    for (const char *named : {"megatron", "modules"})
        for (const json &m : a[named])
            for (const json &p : points)
                if (p["peak_bytes"] >= m["peak_bytes"]) {
                    if (p["peak_bytes"] == m["peak_bytes"]) CHECK(p["extra_ns"] <= m["extra_ns"]);
                    break;
                }
    const std::string drawn = svg.read();
    CHECK(drawn.substr(0, 4) == "<svg");
    CHECK(drawn.find("planner, exact") != std::string::npos);
    for (const char *word : {"selective mlp", "Megatron's settings", "the library's modules"})
        CHECK(drawn.find(word) != std::string::npos);
    CHECK(run(small + std::vector<std::string>{"--sweep"}).out.find("plans are best at some budget") !=
          std::string::npos);
}

TEST_CASE("mdlm plan: what is called Megatron's is what Megatron can do, with its bytes and in its syntax") {
    const std::set<std::string> modules = {"core_attn", "mlp"};  // layernorm does nothing under its default spec
    const double sbh = 2.0 * 128 * 256, layers = 6;
    const auto settings = [](const std::vector<std::string> &more) {
        const json a = answer(small + more + std::vector<std::string>{"--sweep"});
        std::map<std::string, json> named;
        for (const json &m : a["megatron"]) named[m["setting"]] = m;
        return named;
    };
    for (const char *backend : {"fused", "unfused"}) {
        INFO(backend);
        const auto named = settings({"--attention-backend", backend, "--tensor-model-parallel-size", "2"});
        for (const auto &[name, m] : named) {
            INFO(name);
            // Its own parser would take the flags: every one is Megatron's, and modules are words of their own.
            std::istringstream words(m["flags"].get<std::string>());
            std::string flag;
            for (std::string word; words >> word;) {
                if (word.starts_with("--")) flag = word;
                else if (flag == "--recompute-modules") CHECK(modules.count(word) == 1);
                else if (flag == "--recompute-granularity") CHECK((word == "full" || word == "selective"));
                else if (flag == "--recompute-method") CHECK((word == "uniform" || word == "block"));
                else CHECK(flag == "--recompute-num-layers");
                if (word == flag)
                    CHECK(std::set<std::string>{"--recompute-granularity", "--recompute-modules", "--recompute-method",
                                                "--recompute-num-layers", "--distribute-saved-activations"}
                              .count(word) == 1);
            }
        }
        // Replaying attention leaves its context: with fused attention it saves nothing at all.
        const bool fused = std::string(backend) == "fused";
        CHECK(named.count("selective core_attn") == (fused ? 0 : 1));
        CHECK(named.count("selective core_attn mlp") == (fused ? 0 : 1));
        CHECK(named.count("selective mlp") == 1);
        CHECK(named.at("selective mlp")["flags"] == "--recompute-granularity selective --recompute-modules mlp");
        if (fused) continue;
        CHECK(named.at("selective core_attn mlp")["flags"] ==
              "--recompute-granularity selective --recompute-modules core_attn mlp");
        // Unfused, nothing but the probabilities goes: 2 a s^2 b bytes, of which a rank has a half. The context would
        // be 2 sbh / 2 more.
        const double probabilities = 2.0 * 8 * 128 * 128 * 2 / 2 * layers;
        const double less = named.at("none")["saved_bytes"].get<double>() -
                            named.at("selective core_attn")["saved_bytes"].get<double>();
        CHECK(less == doctest::Approx(probabilities).epsilon(0.01));
        CHECK(sbh * layers > 0.02 * probabilities);
    }
    // It offloads without recompute, and never all layers.
    for (const char *count : {"4", "6"}) {
        const auto named = settings({"--cpu-offloading-num-layers", count});
        CHECK(named.count("offloading 4") == (count[0] == '4' ? 1 : 0));
        CHECK(named.count("offloading 6") == 0);
        CHECK(named.at("none")["peak_bytes"] == settings({}).at("none")["peak_bytes"]);
        CHECK(named.at("full uniform 1")["saved_bytes"] == settings({}).at("full uniform 1")["saved_bytes"]);
    }
}

TEST_CASE("mdlm plan: recompute flags without a budget give the plan of these flags") {
    const File svg("");
    const json whole = answer(small + std::vector<std::string>{"--budget", "1TiB"});
    for (const std::vector<std::string> &flags : std::vector<std::vector<std::string>>{
             {"--recompute-granularity", "full", "--recompute-method", "block", "--recompute-num-layers", "2"},
             {"--recompute-granularity", "selective", "--recompute-modules", "mlp", "core_attn"},
             {"--recompute-activations"},
             {"--cpu-offloading-num-layers", "4"}}) {
        INFO(flags.back());
        mdlm_config config = MDLM_CONFIG_INIT;
        mdlm_shape shape = MDLM_SHAPE_INIT;
        shape.seq_length = 128, shape.micro_batch_size = 2;
        mdlm_target target = MDLM_TARGET_INIT;
        target.num_threads = 1;
        // The last are shape and threads.
        const std::vector<std::string> model = std::vector<std::string>(small.begin(), small.end() - 6) + flags;
        std::vector<const char *> words;
        for (const std::string &word : model) words.push_back(word.c_str());
        int used = 0;
        REQUIRE(mdlm_config_parse_flags(&config, static_cast<int>(words.size()), words.data(), &used) == MDLM_OK);
        REQUIRE(used == static_cast<int>(words.size()));
        mdlm_plan *plan = nullptr;
        REQUIRE(mdlm_plan_create(&config, &shape, &target, &plan) == MDLM_OK);
        mdlm_memory memory = MDLM_MEMORY_INIT;
        CHECK(mdlm_plan_memory(plan, &memory) == MDLM_OK);
        mdlm_plan_destroy(plan);

        const json a = answer(small + flags + std::vector<std::string>{"--svg", svg.path});
        CHECK(a["peak_bytes"] == memory.peak_bytes);
        CHECK(a["saved_bytes"] == memory.saved_bytes);
        CHECK(a["host_bytes"] == memory.host_bytes);
        CHECK(a["plan"]["peak_bytes"] == memory.peak_bytes);
        CHECK(a["peak_bytes"] < whole["peak_bytes"]);
        CHECK(a["forward_ns"] == whole["forward_ns"]);
        CHECK(a["extra_ns"] > 0);
        CHECK(svg.read().find("these flags") != std::string::npos);
        const Ended text = run(small + flags);
        CHECK(text.status == 0);
        for (const char *word : {"table ", "extra ", "plan: 6 layers", "final norm"})
            CHECK(text.out.find(word) != std::string::npos);
    }
}

TEST_CASE("mdlm plan: flags from a file, as a training script has them") {
    const File script(
        "#!/bin/sh\n# trains\ntorchrun pretrain.py --num-layers 6 \\\n  --hidden-size 256 --num-attention-heads 8 \\\n"
        "  --ffn-hidden-size 768 --normalization RMSNorm --qk-layernorm --swiglu --disable-bias-linear --lr 1e-4 "
        "--train-iters 100\n"
        "  --attention-mask-type no_mask --bf16 --seq-length 128 --micro-batch-size 2 \"--use-flash-attn\"\n");
    const std::vector<std::string> rest = {"--threads", "1", "--budget", "1TiB"};
    const json direct = answer(small + std::vector<std::string>{"--budget", "1TiB"});
    const Ended e = run(std::vector<std::string>{"--flags", script.path, "--json"} + rest);
    CHECK(e.status == 0);
    CHECK(json::parse(e.out) == direct);
    for (const char *word : {"--lr 1e-4", "--train-iters 100", "no flags of a block"})
        CHECK(e.err.find(word) != std::string::npos);
    CHECK(e.err.find("--qk-layernorm") == std::string::npos);
    expect_refused(run({"--flags", "/no/such/file", "--budget", "1GiB"}), "/no/such/file");
}

}  // namespace planner_test

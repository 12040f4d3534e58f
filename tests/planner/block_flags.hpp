// SPDX-License-Identifier: Apache-2.0
// Flags of a small block for mdlm plan, its answers in JSON, and files for it.
#pragma once
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>

#include "program.hpp"

namespace planner_test {

using nlohmann::json;

// A small diffusion model, as flags.
inline const std::vector<std::string> small = {"--num-layers",
                                               "6",
                                               "--hidden-size",
                                               "256",
                                               "--num-attention-heads",
                                               "8",
                                               "--ffn-hidden-size",
                                               "768",
                                               "--normalization",
                                               "RMSNorm",
                                               "--qk-layernorm",
                                               "--swiglu",
                                               "--disable-bias-linear",
                                               "--attention-mask-type",
                                               "no_mask",
                                               "--bf16",
                                               "--seq-length",
                                               "128",
                                               "--micro-batch-size",
                                               "2",
                                               "--threads",
                                               "1"};

inline std::vector<std::string> operator+(std::vector<std::string> a, const std::vector<std::string> &b) {
    a.insert(a.end(), b.begin(), b.end());
    return a;
}

inline json answer(const std::vector<std::string> &words) {
    const Ended e = run(words + std::vector<std::string>{"--json"});
    CAPTURE(e.err);
    REQUIRE(e.status == 0);
    return json::parse(e.out);
}

struct File {
    std::string path;
    explicit File(const std::string &text) {
        char name[] = "/tmp/mdlm-plan-XXXXXX";
        const int at = mkstemp(name);
        REQUIRE(at >= 0);
        close(at);
        path = name;
        std::ofstream(path) << text;
    }
    ~File() { std::filesystem::remove(path); }
    std::string read() const {
        std::ifstream in(path);
        return {std::istreambuf_iterator<char>(in), {}};
    }
};

}  // namespace planner_test

// SPDX-License-Identifier: Apache-2.0
// A tiny block that mdlm bench can measure in no time, by the words that a user would write.
#pragma once
#include <string>
#include <vector>

#include "../../tools/mdlm/bench/measure.hpp"
#include "../../tools/mdlm/bench/report.hpp"

namespace bench_test {

using Words = std::vector<std::string>;

// 3 layers of width 32, 4 heads in 2 groups, ffn 48 gated, s 16, b 2, all masked by default as causal; more words
// behind them.
inline Words tiny(const Words &more = {}) {
    Words words = {"--num-layers",
                   "3",
                   "--hidden-size",
                   "32",
                   "--num-attention-heads",
                   "4",
                   "--num-query-groups",
                   "2",
                   "--ffn-hidden-size",
                   "48",
                   "--swiglu",
                   "--qk-layernorm",
                   "--normalization",
                   "RMSNorm",
                   "--disable-bias-linear",
                   "--seq-length",
                   "16",
                   "--micro-batch-size",
                   "2",
                   "--threads",
                   "2",
                   "--repeats",
                   "3"};
    words.insert(words.end(), more.begin(), more.end());
    return words;
}

inline mdlm::tools::bench::Measurement measured(const mdlm::tools::bench::Options &options) {
    mdlm::tools::Ranks ranks("test");
    return mdlm::tools::bench::measure(ranks, options, mdlm::tools::bench::settings_of(options),
                                       [](int64_t, int64_t, const std::string &) {});
}

}  // namespace bench_test

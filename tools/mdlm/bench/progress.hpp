// SPDX-License-Identifier: Apache-2.0
// A bar on standard error, where that is a terminal; elsewhere nothing.
#pragma once
#include <chrono>
#include <cstdint>
#include <string>

namespace mdlm::tools::bench {

class ProgressBar {
public:
    ProgressBar();
    ~ProgressBar();  // leaves an empty line behind
    ProgressBar(const ProgressBar &) = delete;
    void show(int64_t done, int64_t of, const std::string &name);

private:
    bool terminal_;
    std::chrono::steady_clock::time_point began_;
};

}  // namespace mdlm::tools::bench

// mdlm plan: options that all of its modes share, and the modes.
#pragma once
#include <cstdint>
#include <optional>
#include <string>

namespace mdlm::tools {

struct PlanOptions {
    std::optional<uint64_t> budget;  // bytes
    bool sweep = false;              // all budgets instead
    bool json = false;
    int64_t label_cap = 0;
    std::string chain;               // file of an abstract chain; "-": standard input
};

// An abstract chain.
int plan_chain(const PlanOptions &options);

// "1234", "1.5GiB", "40 GB": bytes, rounded down. Bad, naming the option, for anything else.
uint64_t bytes_of(const char *option, const std::string &text);

}  // namespace mdlm::tools

// SPDX-License-Identifier: Apache-2.0
// mdlm plan: options that all of its modes share, and the modes.
#pragma once
#include <cstdint>
#include <optional>
#include <string>

#include "mdlm/mdlm.h"

namespace mdlm::tools {

struct PlanOptions {
    std::optional<uint64_t> budget;  // bytes
    bool sweep = false;              // all budgets instead
    bool json = false;
    int64_t label_cap = 0;
    std::string chain;  // file of an abstract chain; "-": standard input
    // A block.
    mdlm_config config = MDLM_CONFIG_INIT;
    mdlm_shape shape = MDLM_SHAPE_INIT;
    mdlm_target target = MDLM_TARGET_INIT;  // device_table is set from table
    std::string table = "cpu";              // a name, or the text of a file
    std::string model;                      // "" or a name
    std::string svg;                        // file to write
    bool article = false;
};

// An abstract chain.
int plan_chain(const PlanOptions &options);
// A block: one budget, or all of them.
int plan_block(const PlanOptions &options);
// The seed article's claim about a model of 30 billion parameters.
int plan_article(const PlanOptions &options);

// "1234", "1.5GiB", "40 GB": bytes, rounded down. Bad, naming the option, for anything else.
uint64_t bytes_of(const char *option, const std::string &text);

}  // namespace mdlm::tools

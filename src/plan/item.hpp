// SPDX-License-Identifier: Apache-2.0
// The chain that a block runs: its items in order, each with a program of its own. What one makes is what the next
// takes. make_chain is the one place that knows which items a model has.
#pragma once
#include <memory>
#include <string>
#include <vector>

#include "layer/program.hpp"

namespace mdlm {

struct Item {
    std::shared_ptr<const Program> program;  // items that are alike share it, and all that is derived from it
    std::string name;                        // in a plan's text; empty: its number
    std::string params;                      // what the names of its parameters begin with
    int64_t layer = 0;                       // its number in the whole model, for dropout and events
    bool by_settings = false;  // settings of recomputation and offloading are about it; else it keeps what it can
    bool in_units = false;     // may stand in a unit of several, and a rank may keep a share of its input
    std::vector<int32_t> sides = {};  // by Program::sides, which of Chain::sides it is
};

struct Chain {
    std::vector<Item> list;
    std::vector<Buffer> sides;  // what the caller gives beside the input
    int64_t items() const { return static_cast<int64_t>(list.size()); }
    const Item &operator[](int64_t item) const { return list[static_cast<size_t>(item)]; }
    const Program &of(int64_t item) const { return *(*this)[item].program; }
    // So many items from `first` on may be one unit.
    bool unit_fits(int64_t first, int64_t count) const;
    int64_t in_units() const;  // how many items may stand in units
};

// Checks the programs, and joins what they want beside the input by its name.
Chain chain_of(std::vector<Item> items);
Chain make_chain(const Config &config);

}  // namespace mdlm

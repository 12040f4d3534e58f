// SPDX-License-Identifier: Apache-2.0
#include "plan/item.hpp"

#include <algorithm>
#include <set>

#include "base/status.hpp"

namespace mdlm {

bool Chain::unit_fits(int64_t first, int64_t count) const {
    if (first < 0 || count < 1 || first > items() - count) return false;
    return std::all_of(list.begin() + first, list.begin() + first + count, [](const Item &i) { return i.in_units; });
}

int64_t Chain::in_units() const {
    return std::count_if(list.begin(), list.end(), [](const Item &i) { return i.in_units; });
}

Chain chain_of(std::vector<Item> items) {
    Chain chain;
    chain.list = std::move(items);
    std::set<const Program *> checked;
    for (Item &item : chain.list) {
        if (checked.insert(item.program.get()).second) item.program->check();
        for (const BufferId id : item.program->sides) {
            const Buffer &side = item.program->buffers[id];
            const auto at = std::find_if(chain.sides.begin(), chain.sides.end(),
                                         [&](const Buffer &other) { return other.name == side.name; });
            if (at != chain.sides.end() && !at->same_form(side))
                fail(MDLM_ERROR_INTERNAL, "%s, given beside the input, has several forms: expected one",
                     side.name.c_str());
            item.sides.push_back(static_cast<int32_t>(at - chain.sides.begin()));
            if (at == chain.sides.end()) chain.sides.push_back(side);
        }
    }
    return chain;
}

// Layers, which share one program, and the final norm where there is one.
Chain make_chain(const Config &config) {
    std::vector<Item> items;
    const auto layer = std::make_shared<const Program>(make_layer_program(config));
    for (int64_t i = 0; i < config.num_layers; ++i) {
        const int64_t number = config.layer_offset + i;
        items.push_back({layer, "", "layers." + std::to_string(number) + ".", number, true, true});
    }
    if (config.final_layernorm)
        items.push_back({std::make_shared<const Program>(make_final_norm_program(config)), "final norm", "",
                         config.layer_offset + config.num_layers, false, false});
    return chain_of(std::move(items));
}

}  // namespace mdlm

// SPDX-License-Identifier: Apache-2.0
#include "plan/item.hpp"

#include <algorithm>

namespace mdlm {

bool Chain::unit_fits(int64_t first, int64_t count) const {
    if (first < 0 || count < 1 || first > items() - count) return false;
    return std::all_of(list.begin() + first, list.begin() + first + count, [](const Item &i) { return i.in_units; });
}

int64_t Chain::in_units() const {
    return std::count_if(list.begin(), list.end(), [](const Item &i) { return i.in_units; });
}

// Layers, which share one program, and the final norm where there is one.
Chain make_chain(const Config &config) {
    Chain chain;
    const auto layer = std::make_shared<const Program>(make_layer_program(config));
    for (int64_t i = 0; i < config.num_layers; ++i) {
        const int64_t number = config.layer_offset + i;
        chain.list.push_back({layer, "", "layers." + std::to_string(number) + ".", number, true, true});
    }
    if (config.final_layernorm)
        chain.list.push_back({std::make_shared<const Program>(make_final_norm_program(config)), "final norm", "",
                              config.layer_offset + config.num_layers, false, false});
    return chain;
}

}  // namespace mdlm

// SPDX-License-Identifier: Apache-2.0
// cos and sin of every position and frequency.
#pragma once
#include <vector>

#include "base/config.hpp"
#include "block/engine.hpp"

namespace mdlm {

// Frequencies after scaling: rotary_dim / 2 of them.
std::vector<double> rotary_frequencies(const Config &config);
int64_t rotary_table_bytes(const Config &config, int64_t positions);  // cos, then sin
void fill_rotary_table(const Config &config, int64_t positions, Device &device, char *table);

}  // namespace mdlm

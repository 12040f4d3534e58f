// SPDX-License-Identifier: Apache-2.0
// Seeded values for tests: the same on every machine, whatever the order they are asked in.
#pragma once
#include <cstdint>

#include "base/dtype.hpp"

namespace mdlm_test {

// Uniform in [-1, 1).
double uniform(uint64_t seed, uint64_t index);

// Elements 0 to count - 1 become middle + scale * uniform(seed, their index).
void fill_uniform(mdlm::DType type, void *to, int64_t count, uint64_t seed, double scale = 1.0, double middle = 0.0);

}  // namespace mdlm_test

// Seeded values for tests: the same on every machine, whatever the order they are asked in.
#pragma once
#include <cstdint>

#include "base/philox.hpp"

namespace mdlm_test {

// Uniform in [-1, 1).
inline double uniform(uint64_t seed, uint64_t index) {
    const auto words = mdlm::philox4x32(seed, {uint32_t(index / 4), uint32_t(index / 4 >> 32), 0x7e57u, 0});
    return double(words[index % 4]) / 2147483648.0 - 1.0;
}

}  // namespace mdlm_test

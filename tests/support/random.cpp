// SPDX-License-Identifier: Apache-2.0
#include "support/random.hpp"

#include <array>

#include "base/philox.hpp"

namespace mdlm_test {
namespace {

std::array<uint32_t, 4> four(uint64_t seed, uint64_t index_div_4) {
    return mdlm::philox4x32(seed, {uint32_t(index_div_4), uint32_t(index_div_4 >> 32), 0x7e57u, 0});
}
double value(uint32_t word) { return double(word) / 2147483648.0 - 1.0; }

}  // namespace

double uniform(uint64_t seed, uint64_t index) { return value(four(seed, index / 4)[index % 4]); }

void fill_uniform(mdlm::DType type, void *to, int64_t count, uint64_t seed, double scale, double middle) {
    for (int64_t i = 0; i < count;) {
        for (const uint32_t word : four(seed, uint64_t(i) / 4)) {
            if (i == count) break;
            mdlm::store(type, to, i++, middle + scale * value(word));
        }
    }
}

}  // namespace mdlm_test

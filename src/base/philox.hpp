// SPDX-License-Identifier: Apache-2.0
// Philox4x32-10 (Salmon et al., "Parallel random numbers: as easy as 1, 2, 3", SC'11), counter based: nothing to save
// or rewind.
#pragma once
#include <array>
#include <cstdint>

namespace mdlm {

inline std::array<uint32_t, 4> philox4x32(uint64_t key, std::array<uint32_t, 4> c) {
    auto k0 = static_cast<uint32_t>(key), k1 = static_cast<uint32_t>(key >> 32);
    for (int round = 0; round < 10; ++round) {
        const uint64_t p0 = uint64_t{0xD2511F53u} * c[0], p1 = uint64_t{0xCD9E8D57u} * c[2];
        c = {uint32_t(p1 >> 32) ^ c[1] ^ k0, uint32_t(p1), uint32_t(p0 >> 32) ^ c[3] ^ k1, uint32_t(p0)};
        k0 += 0x9E3779B9u;
        k1 += 0xBB67AE85u;
    }
    return c;
}

// Where in the model a dropout stands.
enum class Site : uint32_t { probabilities = 0, attention_output = 1, mlp_output = 2 };

// What the random numbers of a call are drawn by. Kernels read it where they run.
struct DrawState {
    uint64_t seed = 0;
    uint32_t step = 0, micro_batch = 0;
};

// Dropout of one tensor. An element is kept when its 32 random bits are >= threshold, and then multiplied by scale. The
// bits are word (index % 4) of Philox with counter (index / 4 low, index / 4 high, step, where | micro-batch); index
// counts the full tensor in logical order.
struct Dropout {
    bool on = false;
    uint32_t threshold = 0;           // probability * 2^32
    float scale = 1.0f;               // 1 / (1 - probability), rounded to float once, for every dtype
    uint32_t where = 0;               // layer (12 bits) << 20 | site (4) << 16; the 16 below are the micro-batch's
    const DrawState *draw = nullptr;  // in the device's memory

    static uint32_t place(uint32_t layer, Site site) { return layer << 20 | static_cast<uint32_t>(site) << 16; }
    uint32_t last_word() const { return where | draw->micro_batch; }
    std::array<uint32_t, 4> four(uint64_t index_div_4) const {
        return philox4x32(draw->seed, {uint32_t(index_div_4), uint32_t(index_div_4 >> 32), draw->step, last_word()});
    }
    bool keeps(uint64_t index) const { return !on || four(index / 4)[index % 4] >= threshold; }
    // What a value is multiplied by: scale or 0. One element; vector code draws four at a time and must give the same.
    float factor(uint64_t index) const { return !on ? 1.0f : keeps(index) ? scale : 0.0f; }
};

}  // namespace mdlm

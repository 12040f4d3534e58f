// SPDX-License-Identifier: Apache-2.0
// Numbers drawn from a seed, the same everywhere.
#pragma once
#include <cstdint>
#include <initializer_list>

namespace mdlm_test {

// SplitMix64 (Steele, Lea, Flood, OOPSLA 2014).
class Random {
public:
    explicit Random(uint64_t seed) : state_(seed) {}
    uint64_t next() {
        uint64_t z = state_ += 0x9e3779b97f4a7c15u;
        z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
        z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
        return z ^ (z >> 31);
    }
    int64_t in(int64_t low, int64_t high) {
        return low + static_cast<int64_t>(next() % static_cast<uint64_t>(high - low + 1));
    }
    bool percent(int64_t p) { return in(1, 100) <= p; }
    double real(double low, double high) {
        return low + (high - low) * static_cast<double>(next() >> 11) / 9007199254740992.0;
    }
    template <class T>
    T one_of(std::initializer_list<T> list) {
        return list.begin()[in(0, static_cast<int64_t>(list.size()) - 1)];
    }

private:
    uint64_t state_;
};

}  // namespace mdlm_test

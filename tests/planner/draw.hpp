// Chains drawn from a seed, and how a case that fails is told.
#pragma once
#include <string>

#include "machine.hpp"

namespace planner_test {

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
    int64_t in(int64_t low, int64_t high) { return low + static_cast<int64_t>(next() % static_cast<uint64_t>(high - low + 1)); }
    bool percent(int64_t p) { return in(1, 100) <= p; }

private:
    uint64_t state_;
};

struct Sizes {
    int64_t layers = 6, types = 3, policies = 3, forms = 2, depth = 3, in_flight = 3;
    int64_t bytes = 12, ns = 9;  // largest of one number
    double plans = 3000;         // most plans; what has more is drawn again, smaller
};
Chain draw_chain(Random &random, const Sizes &sizes);

// Calls body(seed) for each seed in [first, first + count), or only for what MDLM_DRAW names ("17", "100-200"). A body returns what is
// wrong, or ""; that is reported with the chain and with the command that repeats just this one.
struct Case {
    Chain chain;
    std::string wrong;
};
void for_seeds(const char *test, uint64_t first, uint64_t count, Case (*body)(uint64_t seed));

}  // namespace planner_test

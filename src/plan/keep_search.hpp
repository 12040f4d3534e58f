// SPDX-License-Identifier: Apache-2.0
// The sets of tensors that a layer may keep and that no other beats in saved bytes, needed bytes and time: best first,
// in order of saved bytes, with lower bounds on all three for what is not decided yet.
#pragma once
#include <functional>
#include <map>
#include <queue>

#include "base/cancellation.hpp"
#include "plan/alive_bound.hpp"

namespace mdlm {

// How much a search may look at before it takes times for equal that differ by a little: the layer's replay / 2048 at
// first, and twice as much each time it has looked at an eighth as much again.
struct KeepLimits {
    int64_t states = 48000;       // sets, and those of which some tensors are not decided on
    int64_t layouts = 2000;       // sets laid out
    int64_t all_states = 200000;  // the end of it: what was not looked at is not known
    int64_t policies = 320;       // that are left of those found: three such lists are within planner::most_choices
};

struct KeepCounts {
    int64_t states = 0, layouts = 0;
};

class KeepSearch {
public:
    // Lays a set of main buffers out, keeps what it finds, and returns the bytes that it needs.
    using Measure = std::function<int64_t(const BufferSet &kept)>;

    KeepSearch(const Replay &replay, const LayerWeights &weights, const Differentiated &layer, bool input, bool output,
               const KeepLimits &limits, Cancellation *cancellation)
        : choices_(replay, weights, *layer.program, input), bound_(replay, weights, layer, input, output),
          limits_(limits), cancellation_(cancellation) {}

    static constexpr int64_t unknown = int64_t{1} << 61;

    // Measures every set that none beats which was measured before. The order is that of saved bytes, time and the set
    // as a number. Returns by how many nanoseconds more a measured one may take that saves and needs no more than one
    // that was not measured: 0 unless a limit was reached, `unknown` where it was the last of them.
    int64_t run(const Measure &measure);
    const KeepCounts &counts() const { return counts_; }

private:
    struct Node {
        KeepState state;
        AliveBytes alive;
        const KeepChoices::Rests *rests = nullptr;
        size_t next = 0;  // of rests, the first that may not be beaten
        int64_t saved() const { return state.saved + (*rests)[next].saved; }
        int64_t extra_ns() const { return state.extra_ns + (*rests)[next].extra_ns; }
        int64_t needs() const { return std::max(alive.most, alive.below_rest + (*rests)[next].saved); }
    };
    struct Later {
        bool operator()(const Node &a, const Node &b) const;
    };
    void look_at(KeepState state);
    bool pass_beaten(Node &node) const;
    void lay_out(const KeepState &state, const Measure &measure);
    int64_t rival(int64_t extra_ns) const;
    void mind_limits();

    KeepChoices choices_;
    AliveBound bound_;
    KeepLimits limits_;
    Cancellation *cancellation_;
    std::priority_queue<Node, std::vector<Node>, Later> open_;
    std::map<int64_t, int64_t> least_;  // by time, the least that was needed in it or less: falls
    int64_t slack_ns_ = 0, most_ns_ = 0;
    KeepCounts counts_;
};

}  // namespace mdlm

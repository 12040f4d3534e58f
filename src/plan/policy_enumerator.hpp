// SPDX-License-Identifier: Apache-2.0
// What one layer may keep. The policies that can be part of a best plan are found, not listed: every set of tensors
// that can be kept, less those that another is better than in all respects.
#pragma once
#include <vector>

#include "base/cancellation.hpp"
#include "plan/device_table.hpp"
#include "plan/keep_search.hpp"
#include "plan/layout.hpp"

namespace mdlm {

// A policy of one layer with what it needs and costs.
struct MeasuredPolicy {
    LayerPolicy policy;
    int64_t saved = 0, host = 0;        // bytes of the frame, and of the staging slot
    int64_t forward = 0, backward = 0;  // frame and slab; forward alone of what it leaves out of the frame
    int64_t extra_ns = 0;               // of replay alone
    bool saves_input = false;
    int64_t needs() const { return forward > backward ? forward : backward; }
};

class PolicyEnumerator {
public:
    PolicyEnumerator(std::shared_ptr<const Differentiated> layer, Extent bound, const Traits &traits,
                     const DeviceTable &table, Cancellation *cancellation = nullptr);

    // By `key`; where the policy does not save the input, it is not in the frame. The schedule is made anew each time.
    MeasuredPolicy measure(const LayerPolicy &policy, const LayoutKey &key) const;
    // Keep or replay for every tensor, input kept: the Pareto set in saved bytes, needed bytes and time, saved bytes
    // rising. slack_ns: for each set of tensors one is there that saves and needs no more and takes at most so much
    // longer; 0 unless the layer has too many, KeepSearch::unknown where not even that is known.
    std::vector<MeasuredPolicy> pareto(const LayoutKey &key, int64_t *slack_ns = nullptr) const;
    std::vector<MeasuredPolicy> pareto(const LayoutKey &key, const KeepLimits &limits, int64_t *slack_ns,
                                       KeepCounts *counts = nullptr) const;
    // Replays all that may be replayed, input kept.
    LayerPolicy input_only() const;
    // A forward that saves nothing: bytes of its slab, and its time.
    int64_t passing_bytes(const LayoutKey &key) const;
    int64_t forward_ns() const { return forward_ns_; }
    int64_t backward_ns() const { return backward_ns_; }

private:
    std::shared_ptr<const Differentiated> layer_;
    Extent bound_;
    Traits traits_;
    const DeviceTable &table_;
    Cancellation *cancellation_;
    Replay replay_;
    LayerWeights weights_;
    int64_t forward_ns_ = 0, backward_ns_ = 0;
};

// Drops what another is better than, or as good as, in saved bytes, needed bytes and time. Keeps the order.
template <class T, class Saved, class Needs, class Time>
void keep_pareto(std::vector<T> &list, Saved saved, Needs needs, Time time) {
    std::vector<T> best;
    for (const T &c : list) {
        const auto beats = [&](const T &a, const T &b) {
            return saved(a) <= saved(b) && needs(a) <= needs(b) && time(a) <= time(b);
        };
        bool beaten = false;
        for (const T &b : best) beaten = beaten || beats(b, c);
        if (beaten) continue;
        std::erase_if(best, [&](const T &b) { return beats(c, b); });
        best.push_back(c);
    }
    list = std::move(best);
}

// Drops policies until there are at most so many, for each of which one is left that saves and needs no more and takes
// at most so many nanoseconds longer: the least that does, which is returned. KeepSearch::unknown where none does: then
// some of all are left. The list is one of pareto's.
int64_t keep_few(std::vector<MeasuredPolicy> &list, int64_t most);

}  // namespace mdlm

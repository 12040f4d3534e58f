// SPDX-License-Identifier: Apache-2.0
// What the backward of a layer needs again of its forward, and in which order that is made: the one model of it, for
// schedules and for the search over what a layer may keep.
#pragma once
#include <memory>
#include <vector>

#include "layer/derivative.hpp"
#include "plan/buffer_set.hpp"
#include "plan/policy.hpp"

namespace mdlm {

class Replay {
public:
    struct Step {
        int32_t op = 0;
        bool backward = false;  // op is one of Differentiated::backward, else of Program::ops, run again
    };

    // The layer must outlive this.
    explicit Replay(const Differentiated &layer);

    BufferSet none() const { return BufferSet(producer_.size()); }
    int32_t producer(BufferId b) const { return producer_[b]; }                       // -1 for the input
    const BufferSet &outputs(int32_t op) const { return out_[op]; }                   // of a forward op
    const std::vector<BufferId> &with(BufferId main) const { return family_[main]; }  // itself and its statistics
    // What is there whatever the policy, at places of its own: always kept, or given beside the input.
    const BufferSet &given() const { return given_; }
    // May a policy keep it or not, as it likes? Main buffers, but for the input, the output and what is given.
    bool is_choice(BufferId main) const { return choice_.has(main); }

    // What a policy lets stay, if needed: beside the input, which has a place of its own.
    BufferSet staying(const LayerPolicy &policy) const;
    // Where the input is kept and nothing else that need not be.
    const BufferSet &least_staying() const { return least_staying_; }

    // What backward itself reads.
    const BufferSet &read() const { return read_; }
    // Must the op run again, because something that it makes is needed and does not stay? Then all that it reads is
    // needed, too. Asked of all ops, the last first, from read() on, this makes all that backward and its replay read.
    bool run_again(int32_t op, const BufferSet &staying, BufferSet &needed) const;
    BufferSet needed(const BufferSet &staying) const;

    // The ops of backward in their order, each after those of forward that have to run for it and did not before. A
    // tensor is made again as late as can be. at_hand: what is there from the start, the input and
    // what is given apart.
    void steps(const BufferSet &at_hand, std::vector<Step> &to) const;

private:
    void make(BufferId b, BufferSet &at_hand, std::vector<Step> &to) const;

    const Differentiated &d_;
    const Program &p_;
    std::vector<BufferSet> out_;
    std::vector<int32_t> producer_;              // by buffer of forward
    std::vector<std::vector<BufferId>> family_;  // by main buffer
    BufferSet read_, given_, choice_, least_staying_;
};

}  // namespace mdlm

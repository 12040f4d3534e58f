// SPDX-License-Identifier: Apache-2.0
// Bytes that a layer has alive at some step of forward or backward, whatever is chosen of what is not yet: no layout
// needs less.
#pragma once
#include "plan/keep_choices.hpp"

namespace mdlm {

struct AliveBytes {
    int64_t most = 0;  // what choices to come save counts only where it is read
    // Before the first step that reads what choices to come decide on: all that they save stands on this much.
    int64_t below_rest = 0;
};

class AliveBound {
public:
    // Do the layer's input and its output count, that in both phases and this in forward?
    AliveBound(const Replay &replay, const LayerWeights &weights, const Differentiated &layer, bool input, bool output);
    // open_ops: so many of the first ops make what is not decided on.
    AliveBytes operator()(const KeepState &state, int32_t open_ops);

private:
    struct Life {
        int32_t birth = -1, death = -1;
    };
    void forward(const KeepState &state, int32_t open_ops, AliveBytes &found);
    void backward(const KeepState &state, int32_t open_ops, AliveBytes &found);
    // From the step `first` to the step `last`; open: as one of those on which is not decided.
    void count(BufferId b, int32_t first, int32_t last, bool open);
    void start(size_t steps) { alive_.assign(steps + 1, 0), decided_.assign(steps + 1, 0); }

    const Replay &replay_;
    const LayerWeights &weights_;
    const Differentiated &d_;
    const Program &p_;
    bool input_, output_;
    std::vector<Life> forward_lives_;          // of what does not stay
    std::vector<std::vector<BufferId>> over_;  // by forward buffer, inputs that it may be written over in forward,
    std::vector<std::vector<BufferId>> again_over_, backward_over_;  // and by op in backward, of its output 0
    std::vector<Replay::Step> steps_;                                // kept for the next call, as the others
    std::vector<Life> lives_;
    std::vector<int64_t> alive_, decided_;  // by step, what is more than one step before
};

}  // namespace mdlm

// SPDX-License-Identifier: Apache-2.0
// Bytes that a layer's backward has alive at some step, whatever is chosen of what is not yet: no layout needs less.
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
    // input: does the layer's input count?
    AliveBound(const Replay &replay, const LayerWeights &weights, const Differentiated &layer, bool input)
        : replay_(replay), weights_(weights), d_(layer), input_(input) {}
    // open: the buffers that are not decided on; null: all are.
    AliveBytes operator()(const KeepState &state, const BufferSet *open);

private:
    const Replay &replay_;
    const LayerWeights &weights_;
    const Differentiated &d_;
    bool input_;
    std::vector<Replay::Step> steps_;  // kept for the next call, as the others
    std::vector<int32_t> birth_, death_;
    std::vector<int64_t> change_, decided_;
};

}  // namespace mdlm

// SPDX-License-Identifier: Apache-2.0
#include "plan/alive_bound.hpp"

#include <algorithm>

namespace mdlm {

// What may be made in place counts from the next step on. What is open counts from the first step that reads it, as if
// it was there: it stays from the start, or was made again by then.
AliveBytes AliveBound::operator()(const KeepState &state, const BufferSet *open) {
    const Program &p = *d_.program;
    const auto forward_buffers = static_cast<BufferId>(p.buffers.size());
    BufferSet at_hand = state.staying & state.needed;
    const BufferSet stays = at_hand;
    if (open != nullptr) at_hand.add(*open);
    replay_.steps(at_hand, steps_);
    birth_.assign(d_.buffers.size(), -1), death_.assign(d_.buffers.size(), -1);
    const auto count = static_cast<int32_t>(steps_.size());
    const auto is_open = [&](BufferId b) { return b < forward_buffers && open != nullptr && open->has(b); };
    int32_t first_open = count;
    at_hand.add(p.input);
    for (int32_t i = 0; i < count; ++i) {
        const Replay::Step &step = steps_[i];
        const Op &op = d_.op(step.op, step.backward);
        const BufferId later = (step.backward ? weights_.backward_over_input : weights_.over_input)[step.op];
        for (BufferId b : op.in) {
            if (birth_[b] < 0) birth_[b] = i;
            death_[b] = i;
            if (is_open(b) && (b != p.input || input_)) first_open = std::min(first_open, i);
        }
        for (BufferId b : op.out) {
            if (!step.backward) {
                if (at_hand.has(b)) continue;
                at_hand.add(b);
            }
            if (birth_[b] < 0) birth_[b] = i + (b == later);
            death_[b] = i;
        }
    }
    change_.assign(steps_.size() + 1, 0), decided_.assign(steps_.size() + 1, 0);
    for (size_t i = 0; i < d_.buffers.size(); ++i) {
        const auto b = static_cast<BufferId>(i);
        if (death_[i] < 0 || b == d_.output_gradient || b == d_.input_gradient || (b == p.input && !input_)) continue;
        const bool stayed = b < forward_buffers && (b == p.input || stays.has(b));
        const int32_t first = stayed ? 0 : birth_[i];
        if (first > death_[i]) continue;
        change_[first] += weights_.bytes[i], change_[death_[i] + 1] -= weights_.bytes[i];
        if (is_open(b)) continue;
        decided_[first] += weights_.bytes[i], decided_[death_[i] + 1] -= weights_.bytes[i];
    }
    AliveBytes found{state.saved, state.saved};
    int64_t alive = 0, decided = 0;
    for (int32_t i = 0; i < count; ++i) {
        const Replay::Step &step = steps_[i];
        const int64_t workspace = (step.backward ? weights_.backward_workspace : weights_.workspace)[step.op];
        alive += change_[i], found.most = std::max(found.most, alive + workspace);
        decided += decided_[i];
        if (i < first_open) found.below_rest = std::max(found.below_rest, decided + workspace);
    }
    return found;
}

}  // namespace mdlm

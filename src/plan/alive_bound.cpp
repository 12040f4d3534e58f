// SPDX-License-Identifier: Apache-2.0
#include "plan/alive_bound.hpp"

#include <algorithm>

namespace mdlm {

namespace {

// Inputs that an op may write its output 0 over, unless something else reads them later.
std::vector<BufferId> may_be_over(const Op &op, const Differentiated &d) {
    std::vector<BufferId> from;
    if (op.out.empty()) return from;
    for (int32_t i : op.in_place()) {
        const BufferId b = op.in[i];
        if (b != d.program->input && b != d.output_gradient && d.buffers[b].same_form(d.buffers[op.out[0]]))
            from.push_back(b);
    }
    return from;
}

}  // namespace

AliveBound::AliveBound(const Replay &replay, const LayerWeights &weights, const Differentiated &layer, bool input,
                       bool output)
    : replay_(replay), weights_(weights), d_(layer), p_(*layer.program), input_(input), output_(output),
      forward_lives_(p_.buffers.size()), over_(p_.buffers.size()) {
    const auto ops = static_cast<int32_t>(p_.ops.size());
    for (int32_t i = 0; i < ops; ++i) {
        for (BufferId b : p_.ops[i]->in) forward_lives_[b].death = i;
        for (BufferId b : p_.ops[i]->out) forward_lives_[b] = {i, i};
    }
    forward_lives_[p_.input] = {0, ops}, forward_lives_[p_.output].death = ops;
    for (int32_t i = 0; i < ops; ++i) {
        again_over_.push_back(may_be_over(*p_.ops[i], d_));
        for (BufferId from : again_over_.back())
            if (p_.ops[i]->out[0] != p_.output && forward_lives_[from].death == i)
                over_[p_.ops[i]->out[0]].push_back(from);
    }
    for (const auto &op : d_.backward) backward_over_.push_back(may_be_over(*op, d_));
}

void AliveBound::count(BufferId b, int32_t first, int32_t last, bool open) {
    if (first > last) return;
    const int64_t bytes = weights_.bytes[b];
    alive_[first] += bytes, alive_[last + 1] -= bytes;
    if (!open) decided_[first] += bytes, decided_[last + 1] -= bytes;
}

AliveBytes AliveBound::operator()(const KeepState &state, int32_t open_ops) {
    AliveBytes found{state.saved, state.saved};
    forward(state, open_ops, found);
    backward(state, open_ops, found);
    return found;
}

void AliveBound::forward(const KeepState &state, int32_t open_ops, AliveBytes &found) {
    const size_t ops = p_.ops.size();
    start(ops + 1);
    for (size_t i = 0; i < forward_lives_.size(); ++i) {
        const auto b = static_cast<BufferId>(i);
        if (b == p_.input && !(input_ && state.needed.has(b))) continue;  // or nothing keeps it
        if (replay_.given().has(b)) continue;                             // it has a place elsewhere
        if (b == p_.output && !output_) continue;
        const Life &l = forward_lives_[i];
        const bool open = replay_.producer(b) < open_ops;
        const auto stay = [&](BufferId o) { return state.staying.has(o) && state.needed.has(o); };
        // What is made in place counts from the next step on.
        const bool later = !std::all_of(over_[i].begin(), over_[i].end(), stay);
        count(b, l.birth + later, stay(b) ? static_cast<int32_t>(ops) : l.death, open && open_ops > 0);
    }
    int64_t alive = 0, decided = 0;
    for (size_t i = 0; i < ops; ++i) {
        alive += alive_[i], decided += decided_[i];
        found.most = std::max(found.most, alive + weights_.workspace[i]);
        if (static_cast<int32_t>(i) >= open_ops)
            found.below_rest = std::max(found.below_rest, decided + weights_.workspace[i]);
    }
}

// What is open counts from the first step that reads it, as if it was there: it stays from the start, or was made again
// by then.
void AliveBound::backward(const KeepState &state, int32_t open_ops, AliveBytes &found) {
    const auto forward_buffers = static_cast<BufferId>(p_.buffers.size());
    const auto is_open = [&](BufferId b) {
        return open_ops > 0 && b < forward_buffers && replay_.producer(b) < open_ops && !replay_.given().has(b);
    };
    const BufferSet stays = state.staying & state.needed;
    BufferSet at_hand = stays;
    for (int32_t i = 0; i < open_ops; ++i) at_hand.add(replay_.outputs(i));
    at_hand.add(p_.input), at_hand.add(replay_.given());
    replay_.steps(at_hand, steps_);
    const auto steps = static_cast<int32_t>(steps_.size());
    lives_.assign(d_.buffers.size(), {});
    int32_t first_open = steps;
    for (int32_t i = 0; i < steps; ++i) {
        const Replay::Step &step = steps_[i];
        const Op &op = d_.op(step.op, step.backward);
        for (BufferId b : op.in) {
            if (lives_[b].birth < 0) lives_[b].birth = i;
            lives_[b].death = i;
            if (is_open(b) && (b != p_.input || input_)) first_open = std::min(first_open, i);
        }
        for (BufferId b : op.out) {
            if (!step.backward && at_hand.has(b)) continue;
            if (!step.backward) at_hand.add(b);
            if (lives_[b].birth < 0) lives_[b].birth = i;
            lives_[b].death = i;
        }
    }
    // What is made in place counts from the next step on.
    for (int32_t i = 0; i < steps; ++i) {
        const Replay::Step &step = steps_[i];
        const std::vector<BufferId> &over = (step.backward ? backward_over_ : again_over_)[step.op];
        if (over.empty()) continue;
        Life &made = lives_[d_.op(step.op, step.backward).out[0]];
        if (made.birth == i && std::any_of(over.begin(), over.end(), [&](BufferId b) { return lives_[b].death == i; }))
            ++made.birth;
    }
    start(steps_.size());
    for (size_t i = 0; i < lives_.size(); ++i) {
        const auto b = static_cast<BufferId>(i);
        const Life &l = lives_[i];
        if (l.death < 0 || b == d_.output_gradient || b == d_.input_gradient || (b == p_.input && !input_)) continue;
        if (b < forward_buffers && replay_.given().has(b)) continue;
        const bool stayed = b < forward_buffers && (b == p_.input || stays.has(b));
        count(b, stayed ? 0 : l.birth, l.death, is_open(b));
    }
    int64_t alive = 0, decided = 0;
    for (int32_t i = 0; i < steps; ++i) {
        const Replay::Step &step = steps_[i];
        const int64_t workspace = (step.backward ? weights_.backward_workspace : weights_.workspace)[step.op];
        alive += alive_[i], found.most = std::max(found.most, alive + workspace);
        decided += decided_[i];
        if (i < first_open) found.below_rest = std::max(found.below_rest, decided + workspace);
    }
}

}  // namespace mdlm

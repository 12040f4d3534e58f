// SPDX-License-Identifier: Apache-2.0
#include "plan/replay.hpp"

namespace mdlm {

Replay::Replay(const Differentiated &layer)
    : d_(layer), p_(*layer.program), producer_(p_.buffers.size(), -1), family_(p_.buffers.size()) {
    read_ = given_ = choice_ = least_staying_ = none();
    for (size_t i = 0; i < p_.ops.size(); ++i) {
        out_.push_back(none());
        for (BufferId b : p_.ops[i]->out) {
            out_.back().add(b);
            if (producer_[b] < 0) producer_[b] = static_cast<int32_t>(i);
        }
    }
    for (size_t i = 0; i < p_.buffers.size(); ++i) {
        const auto b = static_cast<BufferId>(i);
        const BufferId main = p_.buffers[i].main;
        family_[main].push_back(b);
        if (d_.read[i]) read_.add(b);
        const bool given = p_.always_kept(b) || p_.is_side(b);
        if (given) given_.add(b);
        if (main == b && b != p_.input && b != p_.output && !given) choice_.add(b);
        if (main == p_.input && b != p_.input && !given) least_staying_.add(b);
    }
}

BufferSet Replay::staying(const LayerPolicy &policy) const {
    BufferSet stay = none();
    for (size_t i = 0; i < p_.buffers.size(); ++i) {
        const auto b = static_cast<BufferId>(i);
        const BufferId main = p_.buffers[i].main;
        if (b != p_.input && b != p_.output && !given_.has(b) && policy[main] != Storage::replay) stay.add(b);
    }
    return stay;
}

bool Replay::run_again(int32_t op, const BufferSet &staying, BufferSet &needed) const {
    bool again = false;
    for (BufferId b : p_.ops[op]->out) again = again || (needed.has(b) && !staying.has(b) && !given_.has(b));
    if (again)
        for (BufferId b : p_.ops[op]->in) needed.add(b);
    return again;
}

BufferSet Replay::needed(const BufferSet &staying) const {
    BufferSet need = read_;
    for (auto op = static_cast<int32_t>(p_.ops.size()); op-- > 0;) run_again(op, staying, need);
    return need;
}

void Replay::make(BufferId b, BufferSet &at_hand, std::vector<Step> &to) const {
    if (at_hand.has(b)) return;
    const int32_t op = producer_[b];
    for (BufferId in : p_.ops[op]->in) make(in, at_hand, to);
    at_hand.add(out_[op]);
    to.push_back({op, false});
}

void Replay::steps(const BufferSet &from, std::vector<Step> &to) const {
    to.clear();
    BufferSet at_hand = from;
    at_hand.add(p_.input), at_hand.add(given_);
    for (size_t i = 0; i < d_.backward.size(); ++i) {
        for (BufferId b : d_.backward[i]->in)
            if (b < static_cast<BufferId>(producer_.size())) make(b, at_hand, to);
        to.push_back({static_cast<int32_t>(i), true});
    }
}

}  // namespace mdlm

// SPDX-License-Identifier: Apache-2.0
#include "plan/keep_choices.hpp"

#include <algorithm>

namespace mdlm {

KeepChoices::KeepChoices(const Replay &replay, const LayerWeights &weights, const Program &program, bool input)
    : replay_(replay), weights_(weights), program_(program), input_(input) {
    const auto ops = static_cast<int32_t>(program.ops.size());
    for (int32_t op = ops; op-- > 0;) {
        std::vector<BufferId> mains;
        for (BufferId b : program.ops[op]->out) {
            const BufferId main = program.buffers[b].main;
            if (replay.is_choice(main) && std::count(mains.begin(), mains.end(), main) == 0) mains.push_back(main);
        }
        mains.push_back(no_buffer);
        for (BufferId main : mains) {
            Place place{op, main, replay.none(), replay.none(), replay.none()};
            if (main != no_buffer)
                for (BufferId b : program.ops[op]->out)
                    if (program.buffers[b].main == main) place.asks.add(b);
            places_.push_back(std::move(place));
        }
    }
    BufferSet open = replay.none(), open_mains = replay.none();
    open.add(program.input);
    for (size_t i = places_.size(); i-- > 0;) {
        Place &place = places_[i];
        if (place.main == no_buffer)
            for (BufferId b : program.ops[place.op]->out) open.add(b), open_mains.add(program.buffers[b].main);
        place.open = open, place.open_mains = open_mains;
    }
}

void KeepChoices::advance(KeepState &s) const {
    for (; s.at < static_cast<int32_t>(places_.size()); ++s.at) {
        const Place &place = places_[s.at];
        if (place.main != no_buffer) {
            if (place.asks.meets(s.needed) && !s.kept.has(place.main) && !s.replayed.has(place.main)) return;
            continue;
        }
        for (BufferId b : program_.ops[place.op]->out)
            if (s.needed.has(b) && s.staying.has(b)) s.saved += weights_.bytes[b];
        if (replay_.run_again(place.op, s.staying, s.needed)) s.extra_ns += weights_.op_ns[place.op];
    }
    if (input_ && s.needed.has(program_.input)) s.saved += weights_.bytes[program_.input];
    s.at = -1;
}

KeepState KeepChoices::first() const {
    KeepState s{replay_.none(), replay_.none(), replay_.least_staying(), replay_.read(), 0, 0, 0};
    advance(s);
    return s;
}

KeepState KeepChoices::choose(const KeepState &state, bool keep) const {
    KeepState s = state;
    const BufferId main = places_[s.at].main;
    (keep ? s.kept : s.replayed).add(main);
    if (keep)
        for (BufferId b : replay_.with(main)) s.staying.add(b);
    advance(s);
    return s;
}

// The corner below each few of them.
KeepChoices::Rests KeepChoices::thinned(const Rests &all) {
    if (all.size() <= most_rests) return all;
    Rests few;
    for (size_t i = 0; i < most_rests; ++i) {
        const size_t begin = i * all.size() / most_rests, end = (i + 1) * all.size() / most_rests;
        few.push_back({all[begin].saved, all[end - 1].extra_ns});
    }
    return few;
}

const KeepChoices::Rests &KeepChoices::rests(const KeepState &state) {
    static const Rests nothing = {{0, 0}};
    if (state.done()) return nothing;
    const Place &place = places_[state.at];
    Key key{state.at, state.needed & place.open, state.kept & place.open_mains, state.replayed & place.open_mains};
    const auto known = rests_.find(key);
    if (known != rests_.end()) return known->second;
    if (rests_.size() >= most_states) return nothing;
    Rests all;
    for (const bool keep : {false, true}) {
        const KeepState next = choose(state, keep);
        for (const Rest &r : rests(next))
            all.push_back({next.saved - state.saved + r.saved, next.extra_ns - state.extra_ns + r.extra_ns});
    }
    std::sort(all.begin(), all.end(), [](const Rest &a, const Rest &b) {
        return a.saved != b.saved ? a.saved < b.saved : a.extra_ns < b.extra_ns;
    });
    Rests best;
    for (const Rest &r : all)
        if (best.empty() || r.extra_ns < best.back().extra_ns) best.push_back(r);
    return rests_.emplace(std::move(key), thinned(best)).first->second;
}

}  // namespace mdlm

// SPDX-License-Identifier: Apache-2.0
// What a layer may keep, as a row of choices: from the last op to the first, each tensor that backward or its replay
// turns out to need is kept or made again. So no set is met twice, nor one that keeps a tensor for nothing.
#pragma once
#include <map>

#include "plan/replay.hpp"

namespace mdlm {

// The bytes and nanoseconds of one layer's tensors and ops, at one shape on one device.
struct LayerWeights {
    std::vector<int64_t> bytes;                          // by buffer of Differentiated, rounded
    std::vector<int64_t> op_ns;                          // by forward op
    std::vector<int64_t> workspace, backward_workspace;  // by op, rounded
};

// Some of the choices, the last ops' first.
struct KeepState {
    BufferSet kept, replayed;  // main buffers, as chosen
    BufferSet staying;         // what stays by that
    BufferSet needed;          // by backward and what is known to run again
    int32_t at = 0;            // the choice to come, as an index of KeepChoices; -1: all are made
    int64_t saved = 0;         // bytes that stay
    int64_t extra_ns = 0;      // of ops that run again
    bool done() const { return at < 0; }
};

class KeepChoices {
public:
    // input: does the layer's input count where it is needed?
    KeepChoices(const Replay &replay, const LayerWeights &weights, const Program &program, bool input);

    KeepState first() const;
    KeepState choose(const KeepState &state, bool keep) const;
    // So many of the first ops are not decided yet.
    int32_t open_ops(const KeepState &state) const { return state.done() ? 0 : places_[state.at].op + 1; }

    // What all choices to come may add, the least of it: no set of choices adds less than one of these in both. saved
    // rises, extra_ns falls. It lies below where the layer has too many combinations.
    struct Rest {
        int64_t saved = 0, extra_ns = 0;
    };
    using Rests = std::vector<Rest>;
    const Rests &rests(const KeepState &state);
    size_t states() const { return rests_.size(); }

    static constexpr size_t most_rests = 256, most_states = 20000;

private:
    // A main buffer to choose before an op is passed, or with no_buffer the op itself.
    struct Place {
        int32_t op = 0;
        BufferId main = no_buffer;
        BufferSet asks;        // what the op makes of it
        BufferSet open;        // what it and the ops before it make, and the input,
        BufferSet open_mains;  // and of which main buffers that is part
    };
    void advance(KeepState &state) const;
    static Rests thinned(const Rests &all);

    const Replay &replay_;
    const LayerWeights &weights_;
    const Program &program_;
    bool input_;
    std::vector<Place> places_;
    struct Key {
        int32_t at = 0;
        BufferSet needed, kept, replayed;
        auto operator<=>(const Key &) const = default;
    };
    std::map<Key, Rests> rests_;
};

}  // namespace mdlm

// SPDX-License-Identifier: Apache-2.0
// A drawn case as objects of the library: engine, block, parameters, the caller's buffers; and what a run of it leaves,
// to be compared.
#pragma once
#include <cstring>
#include <memory>
#include <vector>

#include "block/block.hpp"
#include "draw.hpp"

namespace property::memory {

// A heap block of exactly its size, full of NaN.
class Bytes {
public:
    Bytes() = default;
    explicit Bytes(int64_t bytes);
    char *get() const { return at_.get(); }
    int64_t size() const { return bytes_; }
    bool operator==(const Bytes &o) const {
        return bytes_ == o.bytes_ && (bytes_ == 0 || std::memcmp(get(), o.get(), size_t(bytes_)) == 0);
    }

private:
    struct Free {
        void operator()(char *at) const;
    };
    std::unique_ptr<char, Free> at_;
    int64_t bytes_ = 0;
};

// What the caller sees.
struct Outcome {
    std::vector<Bytes> y, dx;  // by event; empty where it has none
    Bytes grads;               // all of them, one after the other
    bool operator==(const Outcome &) const = default;
};

std::unique_ptr<mdlm::Device> make_device(mdlm_device_kind kind, int32_t threads);

class World {
public:
    // One rank's, where the draw is for a group.
    World(Draw draw, std::unique_ptr<mdlm::Device> device, std::shared_ptr<mdlm::Comm> comm = mdlm::make_self_comm());

    const Draw &draw() const { return draw_; }
    const mdlm::BlockPlan &plan() const { return block_->plan(); }
    const mdlm::Config &config() const { return block_->config(); }
    const mdlm::Params &params() const { return block_->params(); }
    mdlm::Engine &engine() const { return *engine_; }
    mdlm::Extent extent(size_t micro) const;
    char *x(size_t micro) const { return x_[micro].get(); }
    char *dy(size_t micro) const { return dy_[micro].get(); }
    // Of the forward (or evaluation) of a micro-batch. call stays as it is until the state is done with.
    mdlm::RunState state(const Event &event, mdlm::CallState &call) const;
    // Buffers for the events, and gradients 0.
    Outcome begin();
    void finish(Outcome &outcome) const;  // takes the gradients
    // Where an event's dx goes: with dx_over_dy it is filled with dy first.
    const void *dy_of(const Event &event, const Outcome &outcome, size_t index) const;
    // As a caller runs it.
    Outcome run();

private:
    struct Apart;
    template <class X, class Y, class Dy, class Dx>
    void run_passes(X &&x, Y &&y, Dy &&dy, Dx &&dx);

    Draw draw_;
    std::unique_ptr<mdlm::Engine> engine_;
    std::unique_ptr<mdlm::Block> block_;
    std::vector<Bytes> x_, dy_;
    Bytes rotary_;
};

}  // namespace property::memory

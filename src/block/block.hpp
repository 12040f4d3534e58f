// SPDX-License-Identifier: Apache-2.0
// A block of layers on one device: parameters, the reservation, forward and backward.
#pragma once
#include <array>
#include <memory>
#include <vector>

#include "block/batch.hpp"
#include "block/params.hpp"
#include "block/runner.hpp"
#include "plan/block_plan.hpp"

namespace mdlm {

class Block;

// What one forward leaves for its backward, apart from the bytes in the arena.
struct Tape {
    const Block *block = nullptr;
    int64_t index = 0;     // of its stack
    uint64_t forward = 0;  // which of the block's forwards it holds: ranks must go back through the same
    bool taken = false;    // somebody holds it
    bool full = false;     // between a forward and its backward
    RunState state;
    CallState call;
    DocumentOffsets offsets;
    const void *x = nullptr;  // borrowed input
    std::vector<const void *> sides;
    uint64_t params_version = 0;
    Counts counts;
};

// Bytes of a plan in the terms of the ABI.
mdlm_memory memory_of(const BlockPlan &plan, const Config &config, int64_t positions, int64_t parameter_bytes,
                      int64_t gradient_bytes);

// Makes ready whatever runs at an extent, of all items; what it made stays as long as the handle.
std::shared_ptr<void> prepare_ops(Device &device, const BlockPlan &plan, Extent extent);

class Block {
public:
    Block(Engine &engine, const mdlm_config &config);
    // Of other items than the config's layers and final norm; what is not about those is the config's.
    Block(Engine &engine, const mdlm_config &config, Chain chain);
    ~Block();
    Block(const Block &) = delete;

    const Config &config() const { return config_; }
    const Chain &chain() const { return chain_; }
    Params &params() { return params_; }
    Engine &engine() const { return engine_; }

    // Calls of the whole tensor-parallel group take their structs as the caller gave them: what is wrong with one
    // rank's is told to the others. planned_for: the config that policies were made for, where they are not the block's
    // own.
    void reserve(const mdlm_shape *shape, const Policies *policies, const Config *planned_for = nullptr);
    mdlm_memory memory() const;
    const mdlm_shape &shape() const;
    const BlockPlan &plan() const;
    void prepare(const mdlm_batch &batch);
    // Of x and dx, and of y and dy.
    mdlm_io input_io(const mdlm_batch &batch) const;
    mdlm_io output_io(const mdlm_batch &batch) const;

    Tape &acquire_tape();
    void release_tape(Tape &tape);
    void reset_tape(Tape &tape);
    void set_documents(Tape &tape, const int32_t *offsets, int64_t count);
    // sides: by Chain::sides, what the items want beside x; to stay as it is until the backward.
    void forward(const mdlm_batch *batch, const void *x, Tape *tape, void *y, const void *const *sides = nullptr);
    void backward(Tape *tape, const mdlm_backward_options *options, const void *dy, void *dx);
    // Every rank's part of a parameter, of its gradient or of memory of the caller, put together on the host.
    // find(statement) checks which that is, and says what ranks must agree on.
    template <class Find>
    void gather(const char *call, int64_t index, const Find &find, mdlm_dtype dtype, void *host, size_t bytes) {
        const auto found = [](const void *f, Statement &s) { return (*static_cast<const Find *>(f))(s); };
        gather(call, index, found, &find, dtype, host, bytes);
    }
    void bind(void *params, size_t params_bytes, void *grads, size_t grads_bytes);
    void bind_one(int64_t index, void *param, void *grad);
    void set_requires_grad(int64_t index, bool on);
    void init_params(uint64_t seed);

private:
    struct Reservation;
    Reservation &reserved() const;
    const Buffer &input() const { return chain_.of(0).buffers[chain_.of(0).input]; }
    const Buffer &output() const {
        const Program &last = chain_.of(chain_.items() - 1);
        return last.buffers[last.output];
    }
    mdlm_io io_of(const Buffer &boundary, const mdlm_batch &batch) const;
    void none_in_flight(const char *what) const;
    void prepare_shape(Reservation &r, Extent extent);
    RunBindings bindings(Reservation &r, const RunState &state, const Tape *tape) const;
    // By number: of the tapes, then of evaluations.
    CallState &image_of(Reservation &r, int64_t image) const;
    void copy_state(Reservation &r, int64_t image, const Place &place, RunBindings &bindings);
    void release();
    std::unique_ptr<Reservation> prepare_reservation(const mdlm_shape &shape, const Policies *policies);
    std::array<std::vector<Group::Text>, 3> what_runs(const Reservation &reservation) const;
    // Not a std::function, whose making can fail before the ranks have come together.
    using Find = Params::Elements (*)(const void *find, Statement &statement);
    void gather(const char *call, int64_t index, Find find, const void *with, mdlm_dtype dtype, void *host,
                size_t bytes);
    void run_backward(Reservation &r, Tape &tape, RunBindings &bindings, const mdlm_backward_options &options);

    Engine &engine_;
    Config config_;
    Chain chain_;
    Params params_;
    States states_;
    std::unique_ptr<Reservation> reservation_;
    uint64_t forwards_ = 0;
};

}  // namespace mdlm

// A block of layers on one device: parameters, the reservation, forward and backward.
#pragma once
#include <memory>
#include <vector>

#include "block/batch.hpp"
#include "block/params.hpp"
#include "block/runner.hpp"
#include "plan/block_plan.hpp"

namespace mdlm {

// What one forward leaves for its backward, apart from the bytes in the arena.
struct Tape {
    int64_t index = 0;      // of its stack
    bool taken = false;     // somebody holds it
    bool full = false;      // between a forward and its backward
    RunState state;
    Documents documents;
    DocumentOffsets offsets;
    const void *x = nullptr;  // borrowed input
    uint64_t params_version = 0;
    Counts counts;
};

// Bytes of a plan in the terms of the ABI.
mdlm_memory memory_of(const BlockPlan &plan, const Config &config, int64_t positions, int64_t parameter_bytes, int64_t gradient_bytes);

class Block {
public:
    Block(Engine &engine, const mdlm_config &config);
    ~Block();
    Block(const Block &) = delete;

    const Config &config() const { return config_; }
    const Programs &programs() const { return programs_; }
    Params &params() { return params_; }
    Engine &engine() const { return engine_; }

    void reserve(const mdlm_shape &shape, const Policies *policies);
    mdlm_memory memory() const;
    const mdlm_shape &shape() const;
    const BlockPlan &plan() const;
    void prepare(const mdlm_batch &batch);
    mdlm_io io(const mdlm_batch &batch) const;

    Tape &take_tape();
    void give_tape(Tape &tape);
    void reset_tape(Tape &tape);
    void set_documents(Tape &tape, const int32_t *offsets, int64_t count);
    void forward(const mdlm_batch &batch, const void *x, Tape *tape, void *y);
    void backward(Tape &tape, const mdlm_backward_options &options, const void *dy, void *dx);
    void bind(void *params, size_t params_bytes, void *grads, size_t grads_bytes);
    void bind_one(int64_t index, void *param, void *grad);
    void set_requires_grad(int64_t index, bool on);

private:
    struct Reservation;
    Reservation &reserved() const;
    void none_in_flight(const char *what) const;
    void prepare_shape(Reservation &r, Extent extent);
    Frame frame(Reservation &r, const RunState &state, const Tape *tape) const;
    void release();

    Engine &engine_;
    Config config_;
    Programs programs_;
    Params params_;
    std::unique_ptr<Reservation> reservation_;
};

}  // namespace mdlm

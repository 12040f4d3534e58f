// SPDX-License-Identifier: Apache-2.0
#include "block/block.hpp"

#include <algorithm>

#include "base/sizes.hpp"
#include "block/reservation.hpp"

namespace mdlm {

Block::Block(Engine &engine, const mdlm_config &config) : Block(engine, config, make_chain(resolve(config))) {}

Block::Block(Engine &engine, const mdlm_config &config, Chain chain)
    : engine_(engine), config_(resolve(config)), chain_(std::move(chain)),
      params_(config_, chain_, engine.group.rank()), states_(chain_) {
    if (!engine.device->traits().supports(config_.params_dtype))
        fail(MDLM_ERROR_UNSUPPORTED, "params_dtype = %s: this device does not run it", name_of(config_.params_dtype));
    if (config_.tensor_model_parallel_size != engine.group.size())
        fail(MDLM_ERROR_UNSUPPORTED,
             "tensor_model_parallel_size = %lld: expected %lld, the size of the context's group",
             (long long)config_.tensor_model_parallel_size, (long long)engine.group.size());
}

Block::~Block() {
    release();
    engine_.parameter_bytes -= params_.own_parameter_bytes() + states_.own_bytes();
    engine_.gradient_bytes -= params_.own_gradient_bytes();
}

Block::Reservation &Block::reserved() const {
    if (reservation_ == nullptr)
        fail(MDLM_ERROR_STATE, "the block is not reserved: expected mdlm_block_reserve before");
    return *reservation_;
}

const mdlm_shape &Block::shape() const { return reserved().shape; }
const BlockPlan &Block::plan() const { return *reserved().plan; }

mdlm_memory Block::memory() const {
    const Reservation &r = reserved();
    return memory_of(*r.plan, config_, r.shape.seq_length, params_.own_parameter_bytes() + states_.own_bytes(),
                     params_.own_gradient_bytes());
}

void Block::none_in_flight(const char *what) const {
    if (reservation_ != nullptr && reservation_->in_flight > 0)
        fail(MDLM_ERROR_STATE, "%s: %lld tapes are between forward and backward: expected none", what,
             (long long)reservation_->in_flight);
}

void Block::prepare(const mdlm_batch &batch) {
    Reservation &r = reserved();
    check_batch(config_, r.shape, batch);
    prepare_shape(r, {batch.seq_length * batch.micro_batch_size, batch.seq_length});
}

mdlm_io Block::input_io(const mdlm_batch &batch) const { return io_of(input(), batch); }
mdlm_io Block::output_io(const mdlm_batch &batch) const { return io_of(output(), batch); }

mdlm_io Block::io_of(const Buffer &boundary, const mdlm_batch &batch) const {
    check_batch(config_, reserved().shape, batch);
    mdlm_io io = MDLM_IO_INIT;
    const int64_t s = batch.seq_length / boundary.split, b = batch.micro_batch_size;
    io.ndim = 3;
    io.dtype = static_cast<mdlm_dtype>(boundary.dtype);
    io.shape[0] = config_.batch_first ? b : s;
    io.shape[1] = config_.batch_first ? s : b;
    io.shape[2] = boundary.per_token;
    io.bytes = static_cast<uint64_t>(mul(mul(s * b, boundary.per_token), size_of(boundary.dtype)));
    io.alignment = static_cast<uint64_t>(engine_.device->alignment(boundary.dtype));
    return io;
}

Tape &Block::acquire_tape() {
    Reservation &r = reserved();
    for (auto &tape : r.tapes) {
        if (tape->taken) continue;
        tape->taken = true;
        tape->full = false;
        tape->offsets.count = 0;
        tape->counts = {};
        return *tape;
    }
    fail(MDLM_ERROR_STATE, "tape: all %zu tapes are taken: expected in_flight of the reserved shape to cover them",
         r.tapes.size());
}

void Block::reset_tape(Tape &tape) {
    if (tape.full) --reserved().in_flight;
    tape.full = false;
}

void Block::release_tape(Tape &tape) {
    reset_tape(tape);
    tape.taken = false;
}

void Block::set_documents(Tape &tape, const int32_t *offsets, int64_t count) {
    const Reservation &r = reserved();
    if (offsets == nullptr && count == 0) {
        tape.offsets.count = 0;
        return;
    }
    if (offsets == nullptr)
        fail(MDLM_ERROR_ARGUMENT, "cu_seqlens is NULL with num_documents = %lld: expected 0", (long long)count);
    check_documents(offsets, count, r.shape.max_documents, -1, "cu_seqlens");
    std::copy(offsets, offsets + count + 1, tape.offsets.offsets.begin());
    tape.offsets.count = count;
}

}  // namespace mdlm

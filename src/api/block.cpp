// SPDX-License-Identifier: Apache-2.0
#include "api/objects.hpp"
#include "base/structs.hpp"
#include "block/rotary.hpp"

using namespace mdlm;

mdlm_status mdlm_block_create(mdlm_context *context, const mdlm_config *config, mdlm_block **out) {
    return call(context, "context", [&] {
        const mdlm_config c = copy_in(config, "config");
        not_null(out, "out");
        auto block = std::make_unique<mdlm_block>(context, c);
        *out = block.release();
    });
}

void mdlm_block_destroy(mdlm_block *block) { destroy(block); }

mdlm_status mdlm_block_plan(mdlm_block *block, const mdlm_shape *shape, mdlm_plan **out) {
    return call(block, "block", [&] {
        const mdlm_shape s = copy_in(shape, "shape");
        not_null(out, "out");
        Block &b = block->block;
        Engine &engine = b.engine();
        engine.cancellation.begin("mdlm_block_plan");
        *out = new mdlm_plan(Plan(b.config().raw, s, engine.device->traits(), b.params().trains(), engine.table,
                                  rotary_table_bytes(b.config(), s.seq_length), &engine.cancellation));
    });
}

mdlm_status mdlm_block_reserve(mdlm_block *block, const mdlm_shape *shape, const mdlm_plan *plan) {
    return call(block, "block", [&] {
        if (plan == nullptr) return block->block.reserve(shape, nullptr);
        block->block.reserve(shape, &plan->plan.policies(), &plan->plan.config());
    });
}

mdlm_status mdlm_block_memory(const mdlm_block *block, mdlm_memory *memory) {
    return call(block, "block", [&] { copy_out(memory, block->block.memory(), "memory"); });
}

mdlm_status mdlm_block_io(const mdlm_block *block, const mdlm_batch *batch, mdlm_io *io) {
    return call(block, "block", [&] { copy_out(io, block->block.input_io(copy_in(batch, "batch")), "io"); });
}

mdlm_status mdlm_block_prepare(mdlm_block *block, const mdlm_batch *batch) {
    return call(block, "block", [&] { block->block.prepare(copy_in(batch, "batch")); });
}

mdlm_status mdlm_tape_create(mdlm_block *block, mdlm_tape **out) {
    return call(block, "block", [&] {
        not_null(out, "out");
        *out = new mdlm_tape(block);
    });
}

void mdlm_tape_destroy(mdlm_tape *tape) { destroy(tape); }

mdlm_status mdlm_tape_reset(mdlm_tape *tape) {
    return call(tape, "tape", [&] { tape->block->block.reset_tape(tape->tape); });
}

mdlm_status mdlm_tape_set_documents(mdlm_tape *tape, const int32_t *cu_seqlens, int64_t num_documents) {
    return call(tape, "tape", [&] { tape->block->block.set_documents(tape->tape, cu_seqlens, num_documents); });
}

mdlm_status mdlm_tape_get_stats(const mdlm_tape *tape, mdlm_tape_stats *stats) {
    return call(tape, "tape", [&] {
        const Counts &c = tape->tape.counts;
        const mdlm_tape_stats s = {sizeof s,
                                   c.saved_bytes,
                                   c.host_bytes,
                                   c.high_water_bytes,
                                   c.forward_ops,
                                   c.forward_flops,
                                   c.backward_ops,
                                   c.backward_flops,
                                   c.replayed_ops,
                                   c.replayed_flops,
                                   c.replayed_matmul_flops,
                                   c.forward_collectives,
                                   c.forward_collective_bytes,
                                   c.backward_collectives,
                                   c.backward_collective_bytes,
                                   c.replayed_collectives,
                                   c.replayed_collective_bytes,
                                   c.gradient_collectives,
                                   c.gradient_collective_bytes};
        copy_out(stats, s, "stats");
    });
}

mdlm_status mdlm_block_forward(mdlm_block *block, const mdlm_batch *batch, const void *x, mdlm_tape *tape, void *y) {
    return call(block, "block", [&] { block->block.forward(batch, x, tape != nullptr ? &tape->tape : nullptr, y); });
}

mdlm_status mdlm_block_backward(mdlm_block *block, mdlm_tape *tape, const mdlm_backward_options *options,
                                const void *dy, void *dx) {
    return call(block, "block",
                [&] { block->block.backward(tape != nullptr ? &tape->tape : nullptr, options, dy, dx); });
}

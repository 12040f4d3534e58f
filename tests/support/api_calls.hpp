// SPDX-License-Identifier: Apache-2.0
// Every call of the C ABI on a context, a block or a tape, for tests of what all of them must refuse. Arguments are
// such that a call which is not refused does no harm. A case in tests/unit/api_calls.cpp compares it with the header.
#pragma once
#include <vector>

#include "support/rig.hpp"

namespace mdlm_test {

struct ApiCall {
    const char *name;
    mdlm_status (*call)(Rig &rig);
    bool busy = true;  // refused while another call on the context runs
};

inline const std::vector<ApiCall> &api_calls() {
    static float value = 0;
    static void *data = nullptr;
    static int64_t number = 0;
    static char text[4];
    static mdlm_block *block = nullptr;
    static mdlm_tape *tape = nullptr;
    static mdlm_plan *plan = nullptr;
    constexpr mdlm_dtype f32 = MDLM_DTYPE_F32;
    static const std::vector<ApiCall> calls = {
        {"mdlm_context_info", [](Rig &r) { return mdlm_context_info(r.context, text, sizeof text, nullptr); }},
        {"mdlm_context_last_error",
         [](Rig &r) { return mdlm_context_last_error(r.context, text, sizeof text, nullptr); }, false},
        {"mdlm_context_synchronize", [](Rig &r) { return mdlm_context_synchronize(r.context); }},
        {"mdlm_context_alloc", [](Rig &r) { return mdlm_context_alloc(r.context, 64, &data); }},
        {"mdlm_context_free", [](Rig &r) { return mdlm_context_free(r.context, &value, 4); }},
        {"mdlm_context_copy", [](Rig &r) { return mdlm_context_copy(r.context, &value, text, 4); }},
        {"mdlm_context_get_stats",
         [](Rig &r) {
             mdlm_context_stats stats = MDLM_CONTEXT_STATS_INIT;
             return mdlm_context_get_stats(r.context, &stats);
         }},
        {"mdlm_context_calibrate", [](Rig &r) { return mdlm_context_calibrate(r.context, f32); }},
        {"mdlm_context_get_device_table",
         [](Rig &r) { return mdlm_context_get_device_table(r.context, text, sizeof text, nullptr); }},
        {"mdlm_context_set_device_table", [](Rig &r) { return mdlm_context_set_device_table(r.context, "cpu"); }},
        {"mdlm_context_set_observer", [](Rig &r) { return mdlm_context_set_observer(r.context, nullptr, nullptr); }},
        {"mdlm_block_create", [](Rig &r) { return mdlm_block_create(r.context, &r.config, &block); }},
        {"mdlm_block_reserve", [](Rig &r) { return mdlm_block_reserve(r.block, &r.shape, nullptr); }},
        {"mdlm_block_memory",
         [](Rig &r) {
             mdlm_memory memory = MDLM_MEMORY_INIT;
             return mdlm_block_memory(r.block, &memory);
         }},
        {"mdlm_block_plan", [](Rig &r) { return mdlm_block_plan(r.block, &r.shape, &plan); }},
        {"mdlm_block_io",
         [](Rig &r) {
             mdlm_io io = MDLM_IO_INIT;
             return mdlm_block_io(r.block, &r.batch, &io);
         }},
        {"mdlm_block_prepare", [](Rig &r) { return mdlm_block_prepare(r.block, &r.batch); }},
        {"mdlm_block_forward", [](Rig &r) { return r.forward(); }},
        {"mdlm_block_forward", [](Rig &r) { return r.evaluate(); }},
        {"mdlm_block_backward", [](Rig &r) { return r.backward(); }},
        {"mdlm_tape_create", [](Rig &r) { return mdlm_tape_create(r.block, &tape); }},
        {"mdlm_tape_reset", [](Rig &r) { return mdlm_tape_reset(r.tape); }},
        {"mdlm_tape_set_documents", [](Rig &r) { return mdlm_tape_set_documents(r.tape, nullptr, 0); }},
        {"mdlm_tape_get_stats",
         [](Rig &r) {
             mdlm_tape_stats stats = MDLM_TAPE_STATS_INIT;
             return mdlm_tape_get_stats(r.tape, &stats);
         }},
        {"mdlm_params_data", [](Rig &r) { return mdlm_params_data(r.block, &data, nullptr, nullptr, nullptr); }},
        {"mdlm_params_bind", [](Rig &r) { return mdlm_params_bind(r.block, nullptr, 0, nullptr, 0); }},
        {"mdlm_params_init", [](Rig &r) { return mdlm_params_init(r.block, 1); }},
        {"mdlm_params_changed", [](Rig &r) { return mdlm_params_changed(r.block); }},
        {"mdlm_params_zero_grads", [](Rig &r) { return mdlm_params_zero_grads(r.block); }},
        {"mdlm_param_count", [](Rig &r) { return mdlm_param_count(r.block, &number); }},
        {"mdlm_param_info",
         [](Rig &r) {
             mdlm_param_desc desc = MDLM_PARAM_DESC_INIT;
             return mdlm_param_info(r.block, 0, &desc);
         }},
        {"mdlm_param_find", [](Rig &r) { return mdlm_param_find(r.block, "final_layernorm.bias", &number); }},
        {"mdlm_param_set_requires_grad", [](Rig &r) { return mdlm_param_set_requires_grad(r.block, 0, 0); }},
        {"mdlm_param_bind", [](Rig &r) { return mdlm_param_bind(r.block, 0, nullptr, nullptr); }},
        {"mdlm_param_data", [](Rig &r) { return mdlm_param_data(r.block, 0, &data, nullptr); }},
        {"mdlm_param_read",
         [](Rig &r) { return mdlm_param_read(r.block, 0, nullptr, nullptr, nullptr, f32, &value, 4); }},
        {"mdlm_param_write",
         [](Rig &r) { return mdlm_param_write(r.block, 0, nullptr, nullptr, nullptr, f32, &value, 4); }},
        {"mdlm_param_grad_read",
         [](Rig &r) { return mdlm_param_grad_read(r.block, 0, nullptr, nullptr, nullptr, f32, &value, 4); }},
        {"mdlm_param_gather", [](Rig &r) { return mdlm_param_gather(r.block, 0, f32, &value, 4); }},
        {"mdlm_param_grad_gather", [](Rig &r) { return mdlm_param_grad_gather(r.block, 0, f32, &value, 4); }},
        {"mdlm_param_shard_read",
         [](Rig &r) {
             return mdlm_param_shard_read(r.block, 0, &value, f32, 4, nullptr, nullptr, nullptr, f32, &value, 4);
         }},
        {"mdlm_param_shard_write",
         [](Rig &r) {
             return mdlm_param_shard_write(r.block, 0, &value, f32, 4, nullptr, nullptr, nullptr, f32, &value, 4);
         }},
        {"mdlm_param_shard_gather",
         [](Rig &r) { return mdlm_param_shard_gather(r.block, 0, &value, f32, 4, f32, &value, 4); }},
    };
    return calls;
}

}  // namespace mdlm_test

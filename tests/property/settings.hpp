// SPDX-License-Identifier: Apache-2.0
// Two real layers as settings, their plans, and one step of a block of them, for tests that compare with formulas.
#pragma once
#include <string>
#include <utility>
#include <vector>

#include "memory_world.hpp"
#include "support/checks.hpp"

namespace property {

using Settings = std::vector<std::pair<std::string, std::string>>;

inline Settings operator+(Settings a, const Settings &b) {
    a.insert(a.end(), b.begin(), b.end());
    return a;
}

// A diffusion model's layer: RMSNorm, QK-norm, rotary embedding, SwiGLU with ffn = 3 h, no biases, fused attention.
inline Settings diffusion(int64_t hidden, int64_t heads) {
    return {{"hidden_size", std::to_string(hidden)},
            {"num_attention_heads", std::to_string(heads)},
            {"ffn_hidden_size", std::to_string(3 * hidden)},
            {"normalization", "RMSNorm"},
            {"qk_layernorm", "1"},
            {"add_bias_linear", "0"},
            {"activation_func", "swiglu"},
            {"attention_mask_type", "no_mask"},
            {"params_dtype", "bf16"}};
}
// GPT-3's: LayerNorm, GELU with 4 h, biases, no rotary embedding, scores and probabilities as tensors.
inline Settings gpt(int64_t hidden, int64_t heads) {
    return {{"hidden_size", std::to_string(hidden)},
            {"num_attention_heads", std::to_string(heads)},
            {"add_qkv_bias", "1"},
            {"position_embedding_type", "none"},
            {"attention_backend", "unfused"},
            {"params_dtype", "bf16"}};
}
inline Settings layers(int64_t count) { return {{"num_layers", std::to_string(count)}}; }
inline Settings selective(const std::string &modules) {
    return {{"recompute_granularity", "selective"}, {"recompute_modules", modules}};
}
inline Settings full(const std::string &method, int64_t count) {
    return {{"recompute_granularity", "full"},
            {"recompute_method", method},
            {"recompute_num_layers", std::to_string(count)}};
}

inline mdlm_config config_of(const Settings &settings) {
    mdlm_config c = MDLM_CONFIG_INIT;
    for (const auto &[key, value] : settings) REQUIRE_OK(mdlm_config_set(&c, key.c_str(), value.c_str()));
    return c;
}
inline mdlm_shape shape_of(int64_t seq, int64_t batch) {
    mdlm_shape s = MDLM_SHAPE_INIT;
    s.seq_length = seq, s.micro_batch_size = batch;
    return s;
}

inline std::vector<mdlm_plan_layer> plan_layers(const Settings &settings, int64_t seq, int64_t batch,
                                                int32_t threads = 1) {
    const mdlm_config c = config_of(settings);
    const mdlm_shape shape = shape_of(seq, batch);
    mdlm_target target = MDLM_TARGET_INIT;
    target.num_threads = threads;
    mdlm_plan *plan = nullptr;
    REQUIRE_OK(mdlm_plan_create(&c, &shape, &target, &plan));
    std::vector<mdlm_plan_layer> all(static_cast<size_t>(c.num_layers), MDLM_PLAN_LAYER_INIT);
    for (int64_t i = 0; i < c.num_layers; ++i) REQUIRE_OK(mdlm_plan_get_layer(plan, i, &all[static_cast<size_t>(i)]));
    mdlm_plan_destroy(plan);
    return all;
}

// Of the tape after one forward and backward.
inline mdlm_tape_stats step(const Settings &settings, int64_t seq, int64_t batch_size, int32_t threads = 1) {
    const mdlm_config c = config_of(settings);
    const mdlm_shape shape = shape_of(seq, batch_size);
    mdlm_context_desc desc = MDLM_CONTEXT_DESC_INIT;
    desc.num_threads = threads;
    mdlm_context *context = nullptr;
    mdlm_block *block = nullptr;
    mdlm_tape *tape = nullptr;
    REQUIRE_OK(mdlm_context_create(&desc, &context));
    REQUIRE_OK(mdlm_block_create(context, &c, &block));
    REQUIRE_OK(mdlm_block_reserve(block, &shape, nullptr));
    REQUIRE_OK(mdlm_params_init(block, 1));
    REQUIRE_OK(mdlm_tape_create(block, &tape));
    mdlm_batch batch = MDLM_BATCH_INIT;
    batch.seq_length = seq, batch.micro_batch_size = batch_size, batch.training = 1;
    mdlm_io io = MDLM_IO_INIT;
    REQUIRE_OK(mdlm_block_io(block, &batch, &io));
    memory::Bytes x(int64_t(io.bytes)), y(int64_t(io.bytes)), dy(int64_t(io.bytes)), dx(int64_t(io.bytes));
    std::memset(x.get(), 0x3c, io.bytes);  // 0.0115 in bf16 and f32
    std::memset(dy.get(), 0x3c, io.bytes);
    REQUIRE_OK(mdlm_block_forward(block, &batch, x.get(), tape, y.get()));
    REQUIRE_OK(mdlm_block_backward(block, tape, nullptr, dy.get(), dx.get()));
    mdlm_tape_stats stats = MDLM_TAPE_STATS_INIT;
    REQUIRE_OK(mdlm_tape_get_stats(tape, &stats));
    mdlm_tape_destroy(tape);
    mdlm_block_destroy(block);
    mdlm_context_destroy(context);
    return stats;
}

}  // namespace property

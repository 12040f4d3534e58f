// SPDX-License-Identifier: Apache-2.0
// The resolved view of a config, its digest, and the rules on shapes that need it.
#include <algorithm>
#include <cmath>
#include <string>

#include "base/config.hpp"
#include "base/config_table.hpp"
#include "base/sizes.hpp"
#include "base/status.hpp"

namespace mdlm {
namespace {

// The config that means the same with every default written out, so that equal models have equal text.
mdlm_config written_out(const Config &c) {
    mdlm_config w = c.raw;
    w.num_query_groups = c.num_query_groups;
    w.kv_channels = c.kv_channels;
    w.ffn_hidden_size = c.ffn_hidden_size;
    w.add_qkv_bias = c.add_qkv_bias;
    w.softmax_scale = c.softmax_scale;
    w.attention_backend = c.attention_backend;
    w.grad_dtype = static_cast<mdlm_dtype>(c.grad_dtype);
    w.sequence_parallel = c.sequence_parallel;
    return w;
}

uint64_t model_digest(const Config &c) {
    const mdlm_config w = written_out(c);
    uint64_t digest = digest_start;
    for (const table::Field &field : table::fields())
        if (field.model) digest = digest_of(field.key + ("=" + table::text(w, field)) + "\n", digest);
    return digest;
}

}  // namespace

Config resolve(const mdlm_config &raw) {
    validate(raw);
    Config c{};
    c.raw = raw;
    c.num_layers = raw.num_layers;
    c.layer_offset = raw.layer_offset;
    c.total_num_layers = raw.total_num_layers != 0 ? raw.total_num_layers : raw.layer_offset + raw.num_layers;
    c.hidden_size = raw.hidden_size;
    c.num_attention_heads = raw.num_attention_heads;
    c.num_query_groups = raw.num_query_groups != 0 ? raw.num_query_groups : raw.num_attention_heads;
    c.kv_channels = raw.kv_channels != 0 ? raw.kv_channels : raw.hidden_size / raw.num_attention_heads;
    c.ffn_hidden_size = raw.ffn_hidden_size != 0 ? raw.ffn_hidden_size : 4 * raw.hidden_size;
    c.normalization = raw.normalization;
    c.layernorm_zero_centered_gamma = raw.layernorm_zero_centered_gamma != 0;
    c.layernorm_epsilon = raw.layernorm_epsilon;
    c.qk_layernorm = raw.qk_layernorm != 0;
    c.final_layernorm = raw.final_layernorm != 0;
    c.add_bias_linear = raw.add_bias_linear != 0;
    c.add_qkv_bias = c.add_bias_linear || raw.add_qkv_bias != 0;  // linear_qkv is one of the linears
    c.activation_func = raw.activation_func;
    c.position_embedding_type = raw.position_embedding_type;
    if (raw.position_embedding_type == MDLM_POSITION_ROPE)
        c.rotary_dim = static_cast<int64_t>(static_cast<double>(c.kv_channels) * raw.rotary_percent);
    c.rotary_base = raw.rotary_base;
    c.rotary_interleaved = raw.rotary_interleaved != 0;
    c.use_rope_scaling = raw.use_rope_scaling != 0;
    c.rope_scaling_factor = raw.rope_scaling_factor;
    c.rope_low_freq_factor = raw.rope_low_freq_factor;
    c.rope_high_freq_factor = raw.rope_high_freq_factor;
    c.rope_original_max_position = raw.rope_original_max_position;
    c.seq_len_interpolation_factor = raw.seq_len_interpolation_factor;
    c.attention_mask_type = raw.attention_mask_type;
    c.mask_block_size = raw.mask_block_size;
    c.window_left = raw.window_left;
    c.window_right = raw.window_right;
    c.softmax_scale = raw.softmax_scale != 0 ? raw.softmax_scale : 1.0 / std::sqrt(static_cast<double>(c.kv_channels));
    c.attention_backend =
        raw.attention_backend == MDLM_ATTENTION_UNFUSED ? MDLM_ATTENTION_UNFUSED : MDLM_ATTENTION_FUSED;
    c.attention_dropout = raw.attention_dropout;
    c.hidden_dropout = raw.hidden_dropout;
    c.batch_first = raw.batch_first != 0;
    c.params_dtype = static_cast<DType>(raw.params_dtype);
    c.grad_dtype = wide(c.params_dtype);
    c.init_method_std = raw.init_method_std;
    c.output_init_std = raw.output_init_std != 0
                            ? raw.output_init_std
                            : raw.init_method_std / std::sqrt(2.0 * static_cast<double>(c.total_num_layers));
    c.tensor_model_parallel_size = raw.tensor_model_parallel_size;
    c.sequence_parallel = raw.sequence_parallel != 0 && raw.tensor_model_parallel_size > 1;
    c.recompute_granularity = raw.recompute_granularity;
    if (raw.recompute_granularity == MDLM_RECOMPUTE_GRANULARITY_FULL) {
        c.recompute_method = raw.recompute_method != MDLM_RECOMPUTE_METHOD_NONE
                                 ? raw.recompute_method
                                 : mdlm_recompute_method{MDLM_RECOMPUTE_METHOD_UNIFORM};
        c.recompute_num_layers = std::max<int64_t>(raw.recompute_num_layers, 1);
    }
    if (raw.recompute_granularity == MDLM_RECOMPUTE_GRANULARITY_SELECTIVE)
        c.recompute_modules = raw.recompute_modules != 0
                                  ? raw.recompute_modules
                                  : uint32_t{MDLM_RECOMPUTE_MODULE_QKV | MDLM_RECOMPUTE_MODULE_CORE_ATTN};
    c.distribute_saved_activations = raw.distribute_saved_activations != 0;
    c.cpu_offloading_num_layers = raw.cpu_offloading_num_layers;
    c.memory_budget = raw.memory_budget;
    c.memory_budget_includes_parameters = raw.memory_budget_includes_parameters != 0;
    c.digest = model_digest(c);
    return c;
}

void check_sequence(const Config &c, int64_t s) {
    if (c.sequence_parallel && s % c.tensor_model_parallel_size != 0)
        fail(MDLM_ERROR_SHAPE,
             "seq_length = %lld is not divisible by tensor_model_parallel_size = %lld, as sequence_parallel needs",
             static_cast<long long>(s), static_cast<long long>(c.tensor_model_parallel_size));
}

int64_t most_tokens(const mdlm_shape &shape) {
    return shape.max_tokens != 0 ? shape.max_tokens : mul(shape.seq_length, shape.micro_batch_size);
}

void check_shape(const Config &c, const mdlm_shape &shape) {
    const auto flag = [](const char *name, int32_t value) {
        if (value != 0 && value != 1) fail(MDLM_ERROR_ARGUMENT, "shape: %s = %d: expected 0 or 1", name, value);
    };
    flag("evaluate_in_flight", shape.evaluate_in_flight);
    flag("share_scratch", shape.share_scratch);
    if (shape.reserved != 0) fail(MDLM_ERROR_ARGUMENT, "shape.reserved = %d: expected 0", shape.reserved);
    flag("input_requires_grad", shape.input_requires_grad);
    if (shape.input_storage != MDLM_INPUT_COPY && shape.input_storage != MDLM_INPUT_BORROW)
        fail(MDLM_ERROR_ARGUMENT, "shape: input_storage = %d: expected COPY (0) or BORROW (1)", shape.input_storage);

    const auto range = [](const char *name, int64_t value, int64_t low, int64_t high) {
        if (value < low || value > high)
            fail(MDLM_ERROR_SHAPE, "shape: %s = %lld: expected %lld .. %lld", name, static_cast<long long>(value),
                 static_cast<long long>(low), static_cast<long long>(high));
    };
    range("seq_length", shape.seq_length, 1, 1 << 24);
    range("micro_batch_size", shape.micro_batch_size, 1, 1 << 20);
    const int64_t all = shape.seq_length * shape.micro_batch_size;  // at most 2^44
    if (shape.max_tokens != 0) range("max_tokens", shape.max_tokens, shape.seq_length, all);
    range("max_documents", shape.max_documents, 0, shape.seq_length);
    range("in_flight", shape.in_flight, 1, 65536);
    check_sequence(c, shape.seq_length);

    try {
        const int64_t widest = std::max({c.hidden_size, c.qkv_size(), c.fc1_size()});
        mul(mul(all, widest), 8);
        if (c.attention_backend == MDLM_ATTENTION_UNFUSED)
            mul(mul(mul(all, shape.seq_length), c.num_attention_heads), 8);
    } catch (const Error &) {
        fail(MDLM_ERROR_OVERFLOW,
             "shape: seq_length = %lld, micro_batch_size = %lld: the bytes of one activation do not fit in 63 bits",
             static_cast<long long>(shape.seq_length), static_cast<long long>(shape.micro_batch_size));
    }
}

}  // namespace mdlm

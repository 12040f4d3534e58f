// SPDX-License-Identifier: Apache-2.0
// Settings: as text by key or flag, their rules, and the resolved view that the rest of the library reads.
#pragma once
#include <cstdint>
#include <string>
#include <string_view>

#include "base/dtype.hpp"
#include "mdlm/mdlm.h"

namespace mdlm {

// By key, as mdlm_config_set and mdlm_config_get say. A failed set has changed nothing.
void config_set(mdlm_config &config, std::string_view key, std::string_view value);
std::string config_get(const mdlm_config &config, std::string_view key);
int32_t config_key_count();
const char *config_key(int32_t index);  // nullptr past the end
// Returns how many words were taken, as mdlm_config_parse_flags says. After a failure config may be half changed: hand
// in a copy.
int config_parse_flags(mdlm_config &config, int argc, const char *const *argv);

// Throws CONFIG naming every broken rule, joined by "; ", or OVERFLOW for sizes that break no rule but do not fit in 63
// bits.
void validate(const mdlm_config &config);

// Every setting with its default worked out. Names are the fields'; what differs from the field is said.
struct Config {
    mdlm_config raw;  // as given
    int64_t num_layers, layer_offset, hidden_size, num_attention_heads;
    int64_t total_num_layers;                                // never 0
    int64_t num_query_groups, kv_channels, ffn_hidden_size;  // never 0
    mdlm_normalization normalization;
    bool layernorm_zero_centered_gamma;
    double layernorm_epsilon;
    bool qk_layernorm, final_layernorm, add_bias_linear;
    bool add_qkv_bias;  // linear_qkv has a bias: also where add_bias_linear says so
    mdlm_activation activation_func;
    mdlm_position_embedding position_embedding_type;
    int64_t rotary_dim;  // channels of a head that turn; 0 without rope
    double rotary_base;
    bool rotary_interleaved, use_rope_scaling;
    double rope_scaling_factor, rope_low_freq_factor, rope_high_freq_factor;
    int64_t rope_original_max_position;
    double seq_len_interpolation_factor;
    mdlm_mask_type attention_mask_type;  // never DEFAULT
    int64_t mask_block_size, window_left, window_right;
    double softmax_scale;                      // never 0
    mdlm_attention_backend attention_backend;  // FUSED or UNFUSED
    double attention_dropout, hidden_dropout;
    bool batch_first;
    DType params_dtype, grad_dtype;
    double init_method_std, output_init_std;  // the second is 0 only where the first is
    int64_t tensor_model_parallel_size;
    bool sequence_parallel;  // false with t = 1
    mdlm_recompute_granularity recompute_granularity;
    mdlm_recompute_method recompute_method;  // UNIFORM or BLOCK with full, else NONE
    int64_t recompute_num_layers;            // >= 1 with full, else 0
    uint32_t recompute_modules;              // not 0 with selective, else 0
    bool distribute_saved_activations;
    int64_t cpu_offloading_num_layers;  // 0 = no offloading
    int64_t memory_budget;              // 0 = none
    bool memory_budget_includes_parameters;
    uint64_t digest;  // of the model: everything except how it is recomputed, offloaded and initialised

    bool gated() const { return activation_func == MDLM_ACT_SWIGLU || activation_func == MDLM_ACT_GEGLU; }
    // Widths over all ranks.
    int64_t qkv_size() const { return (num_attention_heads + 2 * num_query_groups) * kv_channels; }
    int64_t context_size() const { return num_attention_heads * kv_channels; }
    int64_t fc1_size() const { return (gated() ? 2 : 1) * ffn_hidden_size; }
};
// Validates first. Two configs that mean the same model have the same digest, whether defaults are written out or not.
Config resolve(const mdlm_config &config);

// FNV-1a, 64 bits. Start with another text's digest to join the two.
inline constexpr uint64_t digest_start = 0xcbf29ce484222325u;
constexpr uint64_t digest_of(std::string_view text, uint64_t start = digest_start) {
    for (const char c : text) start = (start ^ static_cast<unsigned char>(c)) * 0x100000001b3u;
    return start;
}

// Ranges of a shape: SHAPE with the numbers, ARGUMENT for an unknown enumeration value or a boolean that is not 0 or 1,
// OVERFLOW when a tensor of it cannot be counted in bytes.
void check_shape(const Config &config, const mdlm_shape &shape);
// The part of it that every batch must obey: sequence parallelism cuts the sequence in t equal parts.
void check_sequence(const Config &config, int64_t seq_length);
// max_tokens with its default: seq_length .. seq_length * micro_batch_size of a checked shape.
int64_t most_tokens(const mdlm_shape &shape);

}  // namespace mdlm

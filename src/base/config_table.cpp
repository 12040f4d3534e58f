// SPDX-License-Identifier: Apache-2.0
#include "base/config_table.hpp"

#include <cstring>
#include <limits>
#include <type_traits>

#include "base/structs.hpp"

namespace mdlm::table {
namespace {

constexpr int64_t none = std::numeric_limits<int64_t>::max();
constexpr double infinite = std::numeric_limits<double>::infinity();

constexpr Name norms[] = {{"LayerNorm", MDLM_NORM_LAYERNORM}, {"RMSNorm", MDLM_NORM_RMSNORM}};
constexpr Name activations[] = {{"gelu", MDLM_ACT_GELU},
                                {"gelu_tanh", MDLM_ACT_GELU_TANH},
                                {"squared_relu", MDLM_ACT_SQUARED_RELU},
                                {"swiglu", MDLM_ACT_SWIGLU},
                                {"geglu", MDLM_ACT_GEGLU}};
// Learned positions are added before the block, so to it they are none.
constexpr Name positions[] = {
    {"none", MDLM_POSITION_NONE}, {"rope", MDLM_POSITION_ROPE}, {"learned_absolute", MDLM_POSITION_NONE}};
// The bottom right corner is where queries and keys end; there are as many of both, so it is the plain causal mask.
constexpr Name masks[] = {{"no_mask", MDLM_MASK_NO_MASK},
                          {"causal", MDLM_MASK_CAUSAL},
                          {"block_causal", MDLM_MASK_BLOCK_CAUSAL},
                          {"causal_bottom_right", MDLM_MASK_CAUSAL}};
constexpr Name backends[] = {{"auto", MDLM_ATTENTION_AUTO},
                             {"fused", MDLM_ATTENTION_FUSED},
                             {"unfused", MDLM_ATTENTION_UNFUSED},
                             {"flash", MDLM_ATTENTION_FUSED},
                             {"local", MDLM_ATTENTION_UNFUSED}};
constexpr Name dtypes[] = {{"f32", MDLM_DTYPE_F32},     {"bf16", MDLM_DTYPE_BF16},     {"f16", MDLM_DTYPE_F16},
                           {"f64", MDLM_DTYPE_F64},     {"fp32", MDLM_DTYPE_F32},      {"float32", MDLM_DTYPE_F32},
                           {"float", MDLM_DTYPE_F32},   {"bfloat16", MDLM_DTYPE_BF16}, {"fp16", MDLM_DTYPE_F16},
                           {"float16", MDLM_DTYPE_F16}, {"half", MDLM_DTYPE_F16},      {"fp64", MDLM_DTYPE_F64},
                           {"float64", MDLM_DTYPE_F64}, {"double", MDLM_DTYPE_F64},    {"default", MDLM_DTYPE_DEFAULT}};
constexpr std::span<const Name> no_default{dtypes, std::size(dtypes) - 1};
constexpr Name granularities[] = {{"none", MDLM_RECOMPUTE_GRANULARITY_NONE},
                                  {"selective", MDLM_RECOMPUTE_GRANULARITY_SELECTIVE},
                                  {"full", MDLM_RECOMPUTE_GRANULARITY_FULL}};
constexpr Name methods[] = {{"none", MDLM_RECOMPUTE_METHOD_NONE},
                            {"uniform", MDLM_RECOMPUTE_METHOD_UNIFORM},
                            {"block", MDLM_RECOMPUTE_METHOD_BLOCK}};
constexpr Name modules[] = {
    {"core_attn", MDLM_RECOMPUTE_MODULE_CORE_ATTN},       {"qkv", MDLM_RECOMPUTE_MODULE_QKV},
    {"qk_norm_rope", MDLM_RECOMPUTE_MODULE_QK_NORM_ROPE}, {"layernorm", MDLM_RECOMPUTE_MODULE_LAYERNORM},
    {"mlp_act", MDLM_RECOMPUTE_MODULE_MLP_ACT},           {"mlp", MDLM_RECOMPUTE_MODULE_MLP}};

enum Part : bool { how_it_runs = false, model = true };

template <class Member>
constexpr Field integer(const char *key, size_t offset, Part part, int64_t low, int64_t high) {
    static_assert(std::is_same_v<Member, int64_t> || std::is_same_v<Member, int32_t>);
    constexpr bool wide = sizeof(Member) == 8;
    constexpr int64_t most = std::numeric_limits<Member>::max();
    return {key,    wide ? FieldType::int64 : FieldType::int32,
            offset, {.low = low, .high = high < most ? high : most},
            {},     part};
}
template <class Member>
constexpr Field bytes(const char *key, size_t offset, Part part) {
    static_assert(std::is_same_v<Member, int64_t>);
    return {key, FieldType::bytes, offset, {.low = 0, .high = none}, {}, part};
}
template <class Member>
constexpr Field real(const char *key, size_t offset, Part part, Range range, const char *flag = nullptr) {
    static_assert(std::is_same_v<Member, double>);
    return {key, FieldType::real, offset, range, {}, part, flag};
}
template <class Member>
constexpr Field boolean(const char *key, size_t offset, Part part, const char *flag = nullptr) {
    static_assert(std::is_same_v<Member, int32_t>);
    return {key, FieldType::boolean, offset, {}, {}, part, flag};
}
template <class Member>
constexpr Field named(const char *key, size_t offset, Part part, std::span<const Name> names) {
    constexpr bool bits = std::is_same_v<Member, uint32_t>;
    static_assert(bits || std::is_same_v<Member, int32_t>);
    return {key, bits ? FieldType::modules : FieldType::enumeration, offset, {}, names, part};
}

constexpr Range more_than(double low) { return {.real_low = low, .real_high = infinite, .low_open = true}; }
constexpr Range at_least(double low) { return {.real_low = low, .real_high = infinite}; }
constexpr Range above_to(double low, double high) { return {.real_low = low, .real_high = high, .low_open = true}; }
constexpr Range from_below(double low, double high) { return {.real_low = low, .real_high = high, .high_open = true}; }

#define SETTING(kind, name, ...) kind<decltype(mdlm_config::name)>(#name, offsetof(mdlm_config, name), __VA_ARGS__)
constexpr Field settings[] = {
    SETTING(integer, num_layers, model, 1, 4096),
    SETTING(integer, layer_offset, model, 0, 4095),
    SETTING(integer, total_num_layers, how_it_runs, 0, 4096),
    SETTING(integer, hidden_size, model, 1, 1 << 24),
    SETTING(integer, num_attention_heads, model, 1, 65536),
    SETTING(integer, num_query_groups, model, 0, 65536),
    SETTING(integer, kv_channels, model, 0, none),
    SETTING(integer, ffn_hidden_size, model, 0, none),
    SETTING(named, normalization, model, norms),
    SETTING(boolean, layernorm_zero_centered_gamma, model, "apply-layernorm-1p"),
    SETTING(real, layernorm_epsilon, model, more_than(0), "norm-epsilon"),
    SETTING(boolean, qk_layernorm, model),
    SETTING(boolean, final_layernorm, model),
    SETTING(boolean, add_bias_linear, model),
    SETTING(boolean, add_qkv_bias, model),
    SETTING(named, activation_func, model, activations),
    SETTING(named, position_embedding_type, model, positions),
    SETTING(real, rotary_base, model, more_than(1)),
    SETTING(real, rotary_percent, model, above_to(0, 1)),
    SETTING(boolean, rotary_interleaved, model),
    SETTING(boolean, use_rope_scaling, model),
    SETTING(real, rope_scaling_factor, model, at_least(1)),
    SETTING(real, rope_low_freq_factor, model, more_than(0)),
    SETTING(real, rope_high_freq_factor, model, more_than(0)),
    SETTING(integer, rope_original_max_position, model, 1, none),
    SETTING(real, seq_len_interpolation_factor, model, more_than(0), "rotary-seq-len-interpolation-factor"),
    SETTING(named, attention_mask_type, model, masks),
    SETTING(integer, mask_block_size, model, 0, none),
    SETTING(integer, window_left, model, -1, none),
    SETTING(integer, window_right, model, -1, none),
    SETTING(real, softmax_scale, model, at_least(0)),
    SETTING(named, attention_backend, model, backends),
    SETTING(real, attention_dropout, model, from_below(0, 1)),
    SETTING(real, hidden_dropout, model, from_below(0, 1)),
    SETTING(boolean, batch_first, model),
    SETTING(named, params_dtype, model, no_default),
    SETTING(named, grad_dtype, model, dtypes),
    SETTING(real, init_method_std, how_it_runs, at_least(0)),
    SETTING(real, output_init_std, how_it_runs, at_least(0)),
    SETTING(integer, tensor_model_parallel_size, model, 1, none),
    SETTING(boolean, sequence_parallel, model),
    SETTING(named, recompute_granularity, how_it_runs, granularities),
    SETTING(named, recompute_method, how_it_runs, methods),
    SETTING(integer, recompute_num_layers, how_it_runs, 0, none),
    SETTING(named, recompute_modules, how_it_runs, modules),
    SETTING(boolean, distribute_saved_activations, how_it_runs),
    SETTING(boolean, cpu_offloading, how_it_runs),
    SETTING(integer, cpu_offloading_num_layers, how_it_runs, 0, none),
    SETTING(bytes, memory_budget, how_it_runs),
    SETTING(boolean, memory_budget_includes_parameters, how_it_runs),
};
#undef SETTING

}  // namespace

std::span<const Field> fields() { return settings; }

const Field *find(std::string_view key) {
    for (const Field &field : settings)
        if (key == field.key) return &field;
    return nullptr;
}

bool is_default(const mdlm_config &config, const Field &field) {
    const size_t bytes =
        field.kind == FieldType::int64 || field.kind == FieldType::bytes || field.kind == FieldType::real ? 8 : 4;
    const mdlm_config initial = defaults<mdlm_config>();
    return std::memcmp(reinterpret_cast<const char *>(&config) + field.offset,
                       reinterpret_cast<const char *>(&initial) + field.offset, bytes) == 0;
}

}  // namespace mdlm::table

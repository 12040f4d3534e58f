// SPDX-License-Identifier: Apache-2.0
// Rules on settings: each one that is broken adds one line. A rule that needs a field out of its own range is not
// looked at.
#include <algorithm>
#include <cmath>
#include <cstdarg>
#include <cstdio>
#include <initializer_list>
#include <string>
#include <vector>

#include "base/config.hpp"
#include "base/config_table.hpp"
#include "base/sizes.hpp"
#include "base/status.hpp"

namespace mdlm {
namespace {

class Rules {
public:
    explicit Rules(const mdlm_config &config) : c(config) {
        for (const table::Field &field : table::fields()) {
            std::string line = table::out_of_range(c, field);
            if (line.empty()) continue;
            bad_keys.push_back(field.key);
            lines.push_back(std::move(line));
        }
    }

    void check() {
        heads();
        widths();
        layers();
        positions();
        attention();
        precision();
        recompute();
        distribute();
        offload();
        budget();
    }

    // At most what an error line holds: the last reasons are counted instead of cut.
    std::string joined() const {
        constexpr size_t capacity = 511, tail = sizeof("; and 99 more") - 1;
        std::string all;
        for (size_t i = 0; i < lines.size(); ++i) {
            const size_t after = all.size() + lines[i].size() + (i == 0 ? 0 : 2);
            if (i > 0 && after + (i + 1 < lines.size() ? tail : 0) > capacity)
                return all + "; and " + std::to_string(lines.size() - i) + " more";
            all += (i == 0 ? "" : "; ") + lines[i];
        }
        return all;
    }

private:
    using ll = long long;
    const mdlm_config &c;
    std::vector<std::string> bad_keys, lines;

    bool good(std::initializer_list<std::string_view> keys) const {
        return std::none_of(keys.begin(), keys.end(), [&](std::string_view key) {
            return std::find(bad_keys.begin(), bad_keys.end(), key) != bad_keys.end();
        });
    }
    std::string text(const char *key) const { return table::text(c, *table::find(key)); }
    __attribute__((format(printf, 2, 3))) void broken(const char *format, ...) {
        char line[512];
        va_list arguments;
        va_start(arguments, format);
        std::vsnprintf(line, sizeof line, format, arguments);
        va_end(arguments);
        lines.emplace_back(line);
    }

    void divides(const char *name, int64_t value, const char *by, int64_t divisor) {
        if (value % divisor != 0) broken("%s = %lld is not divisible by %s = %lld", name, ll(value), by, ll(divisor));
    }

    void heads() {
        if (good({"num_attention_heads", "num_query_groups"}) && c.num_query_groups != 0)
            divides("num_attention_heads", c.num_attention_heads, "num_query_groups", c.num_query_groups);
        if (good({"hidden_size", "num_attention_heads", "kv_channels"}) && c.kv_channels == 0 &&
            c.hidden_size % c.num_attention_heads != 0)
            broken("hidden_size = %lld is not divisible by num_attention_heads = %lld, and kv_channels is not set",
                   ll(c.hidden_size), ll(c.num_attention_heads));
    }

    void widths() {
        constexpr const char *t = "tensor_model_parallel_size";
        if (!good({t})) return;
        if (good({"num_attention_heads"}))
            divides("num_attention_heads", c.num_attention_heads, t, c.tensor_model_parallel_size);
        if (good({"num_query_groups"}))
            divides("num_query_groups", c.num_query_groups, t, c.tensor_model_parallel_size);
        if (good({"hidden_size", "ffn_hidden_size"}))
            divides("ffn_hidden_size", c.ffn_hidden_size != 0 ? c.ffn_hidden_size : 4 * c.hidden_size, t,
                    c.tensor_model_parallel_size);
    }

    void layers() {
        if (good({"num_layers", "layer_offset"}) && c.layer_offset + c.num_layers > 4096)
            broken("layer_offset = %lld and num_layers = %lld: expected at most 4096 together", ll(c.layer_offset),
                   ll(c.num_layers));
        if (good({"num_layers", "layer_offset", "total_num_layers"}) && c.total_num_layers != 0 &&
            c.total_num_layers < c.layer_offset + c.num_layers)
            broken("total_num_layers = %lld: expected at least layer_offset + num_layers = %lld",
                   ll(c.total_num_layers), ll(c.layer_offset + c.num_layers));
    }

    void positions() {
        if (good({"rope_low_freq_factor", "rope_high_freq_factor"}) &&
            c.rope_high_freq_factor <= c.rope_low_freq_factor)
            broken("rope_high_freq_factor = %s: expected more than rope_low_freq_factor = %s",
                   text("rope_high_freq_factor").c_str(), text("rope_low_freq_factor").c_str());
        if (!good({"position_embedding_type", "rotary_percent", "kv_channels", "hidden_size", "num_attention_heads"}))
            return;
        if (c.position_embedding_type != MDLM_POSITION_ROPE) return;
        const int64_t d = c.kv_channels != 0 ? c.kv_channels : c.hidden_size / c.num_attention_heads;
        const double turned = std::floor(static_cast<double>(d) * c.rotary_percent);
        if (turned < 2 || std::fmod(turned, 2.0) != 0)
            broken("rope turns %lld of %lld channels (rotary_percent = %s): expected an even number >= 2",
                   static_cast<long long>(turned), ll(d), text("rotary_percent").c_str());
    }

    void attention() {
        if (good({"attention_mask_type", "mask_block_size"}) && c.attention_mask_type == MDLM_MASK_BLOCK_CAUSAL &&
            c.mask_block_size < 1)
            broken("mask_block_size = %d: expected >= 1 with attention_mask_type = block_causal", c.mask_block_size);
    }

    void precision() {
        if (!good({"params_dtype", "grad_dtype"}) || c.grad_dtype == MDLM_DTYPE_DEFAULT) return;
        const DType wanted = wide(static_cast<DType>(c.params_dtype));
        if (static_cast<DType>(c.grad_dtype) != wanted)
            broken("grad_dtype = %s: expected %s with params_dtype = %s", text("grad_dtype").c_str(), name_of(wanted),
                   text("params_dtype").c_str());
    }

    void recompute() {
        if (!good({"recompute_granularity", "recompute_method", "recompute_num_layers", "recompute_modules"})) return;
        const std::string granularity = text("recompute_granularity"), method = text("recompute_method");
        const bool has_method = c.recompute_method != MDLM_RECOMPUTE_METHOD_NONE,
                   has_count = c.recompute_num_layers != 0;
        if (c.recompute_granularity == MDLM_RECOMPUTE_GRANULARITY_FULL) {
            if (good({"num_layers"}) && ((has_method && !has_count) || c.recompute_num_layers > c.num_layers))
                broken(
                    "recompute_num_layers = %lld: expected 1 .. %lld (num_layers) with recompute_granularity = full%s",
                    ll(c.recompute_num_layers), ll(c.num_layers),
                    has_method ? (" and recompute_method = " + method).c_str() : "");
        } else if (has_method || has_count) {
            const std::string count = "recompute_num_layers = " + std::to_string(c.recompute_num_layers);
            broken("%s%s%s: only with recompute_granularity = full, not %s",
                   has_method ? ("recompute_method = " + method).c_str() : "", has_method && has_count ? " and " : "",
                   has_count ? count.c_str() : "", granularity.c_str());
        }
        if (c.recompute_modules != 0 && c.recompute_granularity != MDLM_RECOMPUTE_GRANULARITY_SELECTIVE)
            broken("recompute_modules = %s: only with recompute_granularity = selective, not %s",
                   text("recompute_modules").c_str(), granularity.c_str());
    }

    void distribute() {
        if (!good({"distribute_saved_activations"}) || c.distribute_saved_activations == 0) return;
        std::string needs;
        const auto need = [&](const std::string &what) { needs += (needs.empty() ? " needs " : ", ") + what; };
        if (good({"tensor_model_parallel_size"}) && c.tensor_model_parallel_size == 1)
            need("tensor_model_parallel_size > 1 (it is 1)");
        if (good({"recompute_granularity"}) && c.recompute_granularity != MDLM_RECOMPUTE_GRANULARITY_FULL)
            need("recompute_granularity = full (it is " + text("recompute_granularity") + ")");
        if (good({"recompute_method"}) && c.recompute_method == MDLM_RECOMPUTE_METHOD_NONE)
            need("a recompute_method (it is none)");
        if (good({"sequence_parallel"}) && c.sequence_parallel != 0) need("no sequence_parallel (it is true)");
        if (!needs.empty()) broken("distribute_saved_activations%s", needs.c_str());
    }

    void offload() {
        if (!good({"cpu_offloading", "cpu_offloading_num_layers"})) return;
        const auto count = ll(c.cpu_offloading_num_layers);
        if (c.cpu_offloading == 0 && count != 0)
            broken("cpu_offloading_num_layers = %lld: only with cpu_offloading", count);
        if (c.cpu_offloading != 0 && good({"num_layers"}) && (count < 1 || count > c.num_layers))
            broken("cpu_offloading_num_layers = %lld: expected 1 .. %lld (num_layers) with cpu_offloading", count,
                   ll(c.num_layers));
    }

    // The planner decides what these say.
    void budget() {
        if (!good({"memory_budget", "memory_budget_includes_parameters"})) return;
        if (c.memory_budget == 0) {
            if (c.memory_budget_includes_parameters != 0)
                broken("memory_budget_includes_parameters: only with memory_budget");
            return;
        }
        std::string given;
        for (const char *key : {"recompute_granularity", "recompute_method", "recompute_num_layers",
                                "recompute_modules", "distribute_saved_activations"})
            if (good({key}) && !table::is_default(c, *table::find(key)))
                given += (given.empty() ? "" : ", ") + std::string(key) + " = " + text(key);
        if (!given.empty())
            broken("memory_budget = %lld excludes %s: the planner decides what is replayed", ll(c.memory_budget),
                   given.c_str());
    }
};

// The bytes of all parameters in the widest type, so that no size of the model itself can overflow later.
int64_t parameter_bytes(const mdlm_config &c, int64_t groups, int64_t d, int64_t ffn) {
    // qkv and proj, gate and up and fc2.
    const int64_t columns = add(mul(2 * (c.num_attention_heads + groups), d), mul(3, ffn));
    // + 1 is for biases, the rest for norms.
    const int64_t per_layer = add(mul(columns, c.hidden_size + 1), add(mul(4, d), 8 * c.hidden_size));
    return mul(mul(per_layer, c.num_layers + 1), 8);
}

void check_sizes(const mdlm_config &c) {
    const int64_t groups = c.num_query_groups != 0 ? c.num_query_groups : c.num_attention_heads;
    const int64_t d = c.kv_channels != 0 ? c.kv_channels : c.hidden_size / c.num_attention_heads;
    const int64_t ffn = c.ffn_hidden_size != 0 ? c.ffn_hidden_size : 4 * c.hidden_size;
    try {
        parameter_bytes(c, groups, d, ffn);
    } catch (const Error &) {
        using ll = long long;
        fail(MDLM_ERROR_OVERFLOW,
             "num_layers = %lld, hidden_size = %lld, num_attention_heads = %lld, kv_channels = %lld, ffn_hidden_size = "
             "%lld: "
             "the bytes of the parameters do not fit in 63 bits",
             ll(c.num_layers), ll(c.hidden_size), ll(c.num_attention_heads), ll(d), ll(ffn));
    }
}

}  // namespace

void validate(const mdlm_config &config) {
    Rules rules(config);
    rules.check();
    const std::string broken = rules.joined();
    if (!broken.empty()) fail(MDLM_ERROR_CONFIG, "%s", broken.c_str());
    check_sizes(config);
}

}  // namespace mdlm

// SPDX-License-Identifier: Apache-2.0
// A draw in one line.
#include <cstdarg>
#include <cstdio>

#include "draw.hpp"

namespace property {
namespace {

struct Line {
    std::string text;
    __attribute__((format(printf, 2, 3))) void add(const char *format, ...) {
        char part[160];
        va_list arguments;
        va_start(arguments, format);
        std::vsnprintf(part, sizeof part, format, arguments);
        va_end(arguments);
        text += (text.empty() ? "" : " ") + std::string(part);
    }
    void flag(bool on, const char *name) {
        if (on) add("%s", name);
    }
};

}  // namespace

std::string describe(const Draw &d) {
    const mdlm_config &c = d.config;
    const mdlm_shape &s = d.shape;
    Line l;
    l.add("draw %llu:", static_cast<unsigned long long>(d.seed));
    l.add("%s %d layers (from %d) h=%d heads=%d/%d d=%d ffn=%d", c.params_dtype == MDLM_DTYPE_BF16 ? "bf16" : "f32",
          int(c.num_layers), int(c.layer_offset), int(c.hidden_size), int(c.num_attention_heads),
          int(c.num_query_groups), int(c.kv_channels), int(c.ffn_hidden_size));
    l.add("norm=%d act=%d mask=%d/%d window=%d,%d backend=%d", c.normalization, c.activation_func,
          c.attention_mask_type, c.mask_block_size, int(c.window_left), int(c.window_right), c.attention_backend);
    if (c.tensor_model_parallel_size > 1) l.add("t=%d", int(c.tensor_model_parallel_size));
    l.flag(c.sequence_parallel != 0, "sequence_parallel");
    l.flag(c.distribute_saved_activations != 0, "distribute");
    l.flag(c.qk_layernorm != 0, "qk_norm");
    l.flag(c.position_embedding_type == MDLM_POSITION_ROPE, "rope");
    l.flag(c.final_layernorm != 0, "final_norm");
    l.flag(c.add_bias_linear != 0, "bias");
    l.flag(c.add_qkv_bias != 0, "qkv_bias");
    l.flag(c.batch_first != 0, "batch_first");
    if (c.hidden_dropout > 0 || c.attention_dropout > 0)
        l.add("dropout=%.2f,%.2f", c.hidden_dropout, c.attention_dropout);
    l.add("recompute=%d/%d/%d modules=%x offload=%d", c.recompute_granularity, c.recompute_method,
          int(c.recompute_num_layers), c.recompute_modules, int(c.cpu_offloading_num_layers));
    for (const auto &[first, count] : d.edits.units) l.add("unit=%d+%d", int(first), int(count));
    l.add("tensors=%d%% keep:replay:host:shard=%d:%d:%d:%d", int(d.edits.tensors), int(d.edits.keep),
          int(d.edits.replay), int(d.edits.host), int(d.edits.shard));
    l.add("s<=%d b<=%d tokens<=%d documents<=%d in_flight=%d", int(s.seq_length), int(s.micro_batch_size),
          int(s.max_tokens), int(s.max_documents), s.in_flight);
    l.flag(s.evaluate_in_flight != 0, "evaluate_in_flight");
    l.flag(s.input_requires_grad == 0, "no_dx");
    l.flag(s.share_scratch != 0, "share_scratch");
    l.flag(s.input_storage == MDLM_INPUT_BORROW, "borrow");
    if (d.freeze != Draw::Freeze::nothing) l.add("freeze=%d/%d", int(d.freeze), int(d.frozen_layers));
    for (const MicroBatch &m : d.micro)
        l.add("micro=%dx%d%s%s", int(m.batch.seq_length), int(m.batch.micro_batch_size),
              m.batch.training != 0 ? "t" : "",
              m.documents.empty() ? "" : ("p" + std::to_string(m.documents.size() - 1)).c_str());
    std::string order;
    for (const Event &e : d.events) order += "fbea"[static_cast<int>(e.kind)] + std::to_string(e.micro);
    l.add("order=%s threads=%d", order.c_str(), d.threads);
    return l.text;
}

}  // namespace property

// SPDX-License-Identifier: Apache-2.0
#include "layer/builder.hpp"

#include "base/sizes.hpp"
#include "op/activation.hpp"
#include "op/collective.hpp"
#include "op/linear.hpp"
#include "op/norm.hpp"

namespace mdlm {

int32_t Program::producer(BufferId id) const {
    for (size_t i = 0; i < ops.size(); ++i)
        for (BufferId o : ops[i]->out)
            if (o == id) return static_cast<int32_t>(i);
    return -1;
}

int64_t State::bytes() const { return rounded(mul(elements, size_of(dtype))); }

int64_t Program::kept_bytes(Extent extent) const {
    int64_t sum = 0;
    for (size_t i = 0; i < buffers.size(); ++i)
        if (always_kept(static_cast<BufferId>(i))) sum = add(sum, rounded(buffers[i].bytes(extent)));
    return sum;
}

void Program::check() const {
    for (const auto &op : ops) {
        const auto kept = std::count_if(op->out.begin(), op->out.end(), [&](BufferId b) { return always_kept(b); });
        const auto made = static_cast<std::ptrdiff_t>(op->out.size());
        if (kept != 0 && kept != made)
            fail(MDLM_ERROR_INTERNAL, "op %s: %td of what it makes are always kept: expected all %td or none",
                 op->name(), kept, made);
        if (!op->states.empty() && kept != made)
            fail(MDLM_ERROR_INTERNAL,
                 "op %s has a state, and a replay may run it twice: expected what it makes to be "
                 "always kept",
                 op->name());
        for (BufferId b : op->out)
            if (is_side(b) || b == input)
                fail(MDLM_ERROR_INTERNAL, "op %s assigns %s: expected it to be given", op->name(),
                     buffers[b].name.c_str());
    }
    if (always_kept(output))
        fail(MDLM_ERROR_INTERNAL, "%s is always kept: expected not the output, which the next item has",
             buffers[output].name.c_str());
}

BufferId Program::find(const std::string &name) const {
    for (size_t i = 0; i < buffers.size(); ++i)
        if (buffers[i].main == static_cast<BufferId>(i) && buffers[i].name == name) return static_cast<BufferId>(i);
    return no_buffer;
}

BufferId Builder::buffer(const std::string &name, int64_t per_token, int64_t per_pair, int64_t split) {
    const auto id = static_cast<BufferId>(program_.buffers.size());
    program_.buffers.push_back({name, c_.params_dtype, per_token, per_pair, split, id});
    program_.buffers.back().modules = modules_;
    return id;
}

BufferId Builder::stats(const std::string &name, BufferId main, int64_t per_token, int64_t split) {
    const auto id = static_cast<BufferId>(program_.buffers.size());
    program_.buffers.push_back({name, wide(c_.params_dtype), per_token, 0, split, main});
    return id;
}

ParamId Builder::param(const std::string &name, int64_t rows, int64_t columns, int32_t partition_dim,
                       Param::Init init) {
    Param p;
    p.name = name;
    p.full[0] = rows, p.full[1] = columns > 0 ? columns : 1;
    p.ndim = columns > 0 ? 2 : 1;
    p.partition_dim = partition_dim, p.init = init;
    program_.params.push_back(std::move(p));
    return static_cast<ParamId>(program_.params.size() - 1);
}

ParamId Builder::replicated(const std::string &name, int64_t width, Param::Init init, bool partial) {
    const ParamId id = param(name, width, 0, -1, init);
    program_.params[static_cast<size_t>(id)].partial_grad = partial;
    return id;
}

void Builder::emit(std::unique_ptr<Op> op, std::vector<ParamId> params) {
    for (ParamId p : params)
        if (p != no_param) op->params.push_back(p);
    program_.ops.push_back(std::move(op));
}

BufferId Builder::input(const char *name, int64_t width) {
    return program_.input = buffer(name, width, 0, sequence_split());
}

BufferId Builder::norm(const char *name, const char *prefix, BufferId x, Statistics statistics) {
    NormSpec s;
    s.dtype = c_.params_dtype, s.width = c_.hidden_size, s.split = sequence_split();
    s.rms = rms(), s.zero_centered = c_.layernorm_zero_centered_gamma, s.epsilon = c_.layernorm_epsilon;
    s.weight = replicated(std::string(prefix) + ".weight", s.width, Param::Init::norm_weight, s.split > 1);
    if (!s.rms) s.bias = replicated(std::string(prefix) + ".bias", s.width, Param::Init::bias, s.split > 1);
    const BufferId y = buffer(name, s.width, 0, s.split);
    const BufferId st =
        stats(std::string(name) + ".statistics", statistics == Statistics::with_input ? x : y, s.rms ? 1 : 2, s.split);
    emit(make_norm(s, x, y, st), {s.weight, s.bias});
    return y;
}

BufferId Builder::column_linear(const char *name, const char *prefix, BufferId x, const Rows &rows, bool bias) {
    if (sequence_split() > 1) {
        const BufferId full = buffer(program_.buffers[x].name + ".gathered", program_.buffers[x].per_token);
        program_.buffers[full].rebuilt = true;
        emit(make_collective(Collective::all_gather, program_.buffers[x], x, full, c_.batch_first), {});
        x = full;
    }
    LinearSpec s;
    s.dtype = c_.params_dtype, s.n = rows.count / t(), s.k = program_.buffers[x].per_token;
    s.weight = param(std::string(prefix) + ".weight", rows.count, s.k, 0, Param::Init::weight);
    if (bias) s.bias = param(std::string(prefix) + ".bias", rows.count, 0, 0, Param::Init::bias);
    for (ParamId id : {s.weight, s.bias}) {
        if (id == no_param) continue;
        Param &p = program_.params[static_cast<size_t>(id)];
        p.parts = rows.parts, p.partition_stride = rows.stride;
    }
    s.reduce_input_gradient = t() > 1 && sequence_split() == 1;
    const BufferId y = buffer(name, s.n);
    emit(make_linear(s, x, y), {s.weight, s.bias});
    return y;
}

BufferId Builder::row_linear(const char *name, const char *prefix, BufferId x) {
    LinearSpec s;
    s.dtype = c_.params_dtype, s.n = c_.hidden_size, s.k = program_.buffers[x].per_token;
    s.weight = param(std::string(prefix) + ".weight", s.n, s.k * t(), 1, Param::Init::output_weight);
    const bool reduce = t() > 1;
    const BufferId part = buffer(reduce ? std::string(name) + ".partial" : std::string(name), s.n);
    emit(make_linear(s, x, part), {s.weight});
    if (!reduce) return part;
    const BufferId y = buffer(name, s.n, 0, sequence_split());
    const Collective kind = sequence_split() > 1 ? Collective::reduce_scatter : Collective::all_reduce;
    emit(make_collective(kind, program_.buffers[y], part, y, c_.batch_first), {});
    return y;
}

// Packed by group: its query heads, its key, its value.
Builder::Rows Builder::qkv_rows() const {
    const int64_t d = c_.kv_channels, groups = c_.num_query_groups, queries = c_.num_attention_heads / groups * d,
                  group = queries + 2 * d;
    return {groups * group,
            {{"q", 0, queries, group, groups * queries},
             {"k", queries, d, group, groups * d},
             {"v", queries + d, d, group, groups * d}}};
}

Builder::QKV Builder::split_qkv(BufferId qkv) const {
    const int64_t d = c_.kv_channels, per = c_.num_attention_heads / c_.num_query_groups;
    const int64_t row = program_.buffers[qkv].per_token, group = (per + 2) * d;
    return {qkv, qkv, qkv, {0, row, group, d}, {per * d, row, group, 0}, {(per + 1) * d, row, group, 0}};
}

Builder::QKV Builder::qk_norm_rope(const char *name, const QKV &in) {
    if (!c_.qk_layernorm && c_.position_embedding_type == MDLM_POSITION_NONE) return in;
    QkNormRopeSpec s;
    s.dtype = c_.params_dtype, s.d = c_.kv_channels;
    s.heads = c_.num_attention_heads / t(), s.groups = c_.num_query_groups / t();
    s.rotary_dim = c_.position_embedding_type == MDLM_POSITION_ROPE ? c_.rotary_dim : 0,
    s.interleaved = c_.rotary_interleaved;
    s.norm = c_.qk_layernorm, s.rms = rms(), s.zero_centered = c_.layernorm_zero_centered_gamma,
    s.epsilon = c_.layernorm_epsilon;
    if (s.norm) {
        s.q_weight = replicated("self_attention.q_layernorm.weight", s.d, Param::Init::norm_weight, t() > 1);
        if (!s.rms) s.q_bias = replicated("self_attention.q_layernorm.bias", s.d, Param::Init::bias, t() > 1);
        s.k_weight = replicated("self_attention.k_layernorm.weight", s.d, Param::Init::norm_weight, t() > 1);
        if (!s.rms) s.k_bias = replicated("self_attention.k_layernorm.bias", s.d, Param::Init::bias, t() > 1);
    }
    const int64_t row = (s.heads + s.groups) * s.d, per = s.heads / s.groups;
    const BufferId rotated = buffer(name, row);
    s.q = in.q_at, s.k = in.k_at;
    s.q_out = {0, row, per * s.d, s.d}, s.k_out = {s.heads * s.d, row, s.d, 0};
    const BufferId st = s.norm ? stats(std::string(name) + ".statistics", rotated, s.stats_per_token()) : no_buffer;
    emit(make_qk_norm_rope(s, in.q, rotated, st), {s.q_weight, s.q_bias, s.k_weight, s.k_bias});
    return {rotated, rotated, in.v, s.q_out, s.k_out, in.v_at};
}

BufferId Builder::attention(const char *name, const QKV &in) {
    AttentionSpec s;
    s.dtype = c_.params_dtype, s.d = c_.kv_channels;
    s.heads = c_.num_attention_heads / t(), s.groups = c_.num_query_groups / t();
    s.all_heads = c_.num_attention_heads;
    s.scale = c_.softmax_scale, s.dropout = c_.attention_dropout;
    s.mask.type = c_.attention_mask_type, s.mask.block = c_.mask_block_size, s.mask.left = c_.window_left,
    s.mask.right = c_.window_right;
    s.q = in.q_at, s.k = in.k_at, s.v = in.v_at;
    const int64_t width = s.heads * s.d;
    s.context = {0, width, s.heads / s.groups * s.d, s.d};
    if (c_.attention_backend != MDLM_ATTENTION_UNFUSED) {
        const BufferId context = buffer(name, width);
        const BufferId statistics = stats(std::string(name) + ".statistics", context, 2 * s.heads);
        emit(make_fused_attention(s, in.q, in.k, in.v, context, statistics), {});
        return context;
    }
    const BufferId scores = buffer("attention_scores", 0, s.heads);
    emit(make_attention_scores(s, in.q, in.k, scores), {});
    const BufferId probabilities = buffer("attention_probs", 0, s.heads);
    emit(make_attention_softmax(s, scores, probabilities), {});
    const BufferId context = buffer(name, width);
    emit(make_attention_context(s, probabilities, in.v, context), {});
    return context;
}

Builder::Rows Builder::fc1_rows() const {
    const int64_t f = c_.ffn_hidden_size;
    if (!c_.gated()) return {f, {}};
    return {2 * f, {{"gate", 0, f, f, f}, {"up", f, f, f, f}}, 2};
}

BufferId Builder::activation(const char *name, BufferId g) {
    ActivationSpec s;
    s.dtype = c_.params_dtype, s.kind = c_.activation_func, s.width = c_.ffn_hidden_size / t();
    const BufferId m = buffer(name, s.width);
    emit(make_activation(s, g, m), {});
    return m;
}

BufferId Builder::bias_dropout_add(const char *name, BufferId x, const char *bias, BufferId residual, Site site) {
    BiasDropoutAddSpec s;
    s.dtype = c_.params_dtype, s.width = c_.hidden_size, s.split = sequence_split(), s.dropout = c_.hidden_dropout,
    s.site = site;
    if (c_.add_bias_linear) s.bias = replicated(bias, s.width, Param::Init::bias, s.split > 1);
    const BufferId y = buffer(name, s.width, 0, s.split);
    emit(make_bias_dropout_add(s, x, residual, y), {s.bias});
    return y;
}

}  // namespace mdlm

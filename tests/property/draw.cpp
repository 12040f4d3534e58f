// SPDX-License-Identifier: Apache-2.0
#include "draw.hpp"

#include <algorithm>

namespace property {
namespace {

void draw_model(Random &r, mdlm_config &c) {
    c.num_layers = r.one_of<int64_t>({1, 2, 2, 3, 3, 4, 4, 5});
    c.layer_offset = r.percent(60) ? 0 : r.in(1, 4000);
    c.hidden_size = r.in(8, 48);
    c.num_query_groups = r.in(1, 3);
    c.num_attention_heads = c.num_query_groups * r.one_of<int64_t>({1, 1, 2, 2, 3});
    if (c.num_query_groups == c.num_attention_heads && r.percent(50)) c.num_query_groups = 0;
    c.kv_channels = r.in(2, 13);  // odd ones too
    c.ffn_hidden_size = r.percent(15) ? 0 : r.in(5, 60);
    c.normalization = r.one_of({MDLM_NORM_LAYERNORM, MDLM_NORM_RMSNORM});
    c.layernorm_zero_centered_gamma = r.percent(30);
    c.layernorm_epsilon = r.one_of({1e-5, 1e-6, 1e-3});
    c.qk_layernorm = r.percent(50);
    c.final_layernorm = r.percent(60);
    c.add_bias_linear = r.percent(60);
    c.add_qkv_bias = r.percent(40);
    c.activation_func =
        r.one_of({MDLM_ACT_GELU, MDLM_ACT_GELU_TANH, MDLM_ACT_SQUARED_RELU, MDLM_ACT_SWIGLU, MDLM_ACT_GEGLU});
    c.batch_first = r.percent(40);
}

void draw_positions(Random &r, mdlm_config &c) {
    c.position_embedding_type = r.percent(65) ? MDLM_POSITION_ROPE : MDLM_POSITION_NONE;
    if (c.position_embedding_type == MDLM_POSITION_NONE) return;
    const int64_t turned = 2 * r.in(1, c.kv_channels / 2);
    c.rotary_percent = std::min(1.0, (static_cast<double>(turned) + 0.5) / static_cast<double>(c.kv_channels));
    c.rotary_interleaved = r.percent(40);
    c.rotary_base = r.one_of({10000.0, 100.0});
    if (r.percent(25)) {
        c.use_rope_scaling = 1;
        c.rope_scaling_factor = r.real(1.0, 8.0);
        c.rope_original_max_position = r.in(4, 64);
    }
    if (r.percent(25)) c.seq_len_interpolation_factor = r.real(0.5, 4.0);
}

void draw_attention(Random &r, mdlm_config &c, bool dropout) {
    c.attention_mask_type = r.one_of({MDLM_MASK_NO_MASK, MDLM_MASK_CAUSAL, MDLM_MASK_BLOCK_CAUSAL});
    if (c.attention_mask_type == MDLM_MASK_BLOCK_CAUSAL || r.percent(40))
        c.mask_block_size = static_cast<int32_t>(r.in(1, 6));
    if (r.percent(30)) c.window_left = r.in(0, 6);
    if (r.percent(30)) c.window_right = r.in(0, 4);
    if (r.percent(20)) c.softmax_scale = r.real(0.1, 1.0);
    c.attention_backend =
        r.one_of({MDLM_ATTENTION_AUTO, MDLM_ATTENTION_FUSED, MDLM_ATTENTION_UNFUSED, MDLM_ATTENTION_UNFUSED});
    if (!dropout) return;
    const int64_t which = r.in(1, 3);  // bit 0: hidden, bit 1: attention
    if ((which & 1) != 0) c.hidden_dropout = r.real(0.05, 0.5);
    if ((which & 2) != 0) c.attention_dropout = r.real(0.05, 0.5);
}

// The named setting that the plan starts from.
void draw_setting(Random &r, mdlm_config &c) {
    switch (r.in(0, 4)) {
    case 0: break;
    case 1:
        c.recompute_granularity = MDLM_RECOMPUTE_GRANULARITY_SELECTIVE;
        c.recompute_modules = static_cast<uint32_t>(r.in(0, 63));
        break;
    default:
        c.recompute_granularity = MDLM_RECOMPUTE_GRANULARITY_FULL;
        c.recompute_method =
            r.one_of({MDLM_RECOMPUTE_METHOD_UNIFORM, MDLM_RECOMPUTE_METHOD_UNIFORM, MDLM_RECOMPUTE_METHOD_BLOCK});
        c.recompute_num_layers = r.in(1, c.num_layers);
    }
    if (r.percent(25)) {
        c.cpu_offloading = 1;
        c.cpu_offloading_num_layers = r.in(1, c.num_layers);
    }
}

void draw_edits(Random &r, const mdlm_config &c, PlanEdits &e) {
    e.seed = r.next();
    e.through_json = r.percent(15);
    if (r.percent(75))
        for (int64_t i = r.in(1, 2); i > 0; --i) {
            const int64_t first = r.in(0, c.num_layers - 1);
            e.units.emplace_back(first, r.in(1, c.num_layers - first));
        }
    e.tensors = r.one_of<int64_t>({0, 20, 100, 100});
    e.keep = r.in(1, 3), e.replay = r.in(1, 4), e.host = r.one_of<int64_t>({0, 0, 1, 3});
}

void draw_shape(Random &r, mdlm_shape &s, bool packed) {
    s.seq_length = r.percent(8) ? r.in(40, 80) : r.in(2, 24);
    s.micro_batch_size = packed && r.percent(70) ? 1 : r.in(1, 3);
    if (s.micro_batch_size > 1 && r.percent(30)) s.max_tokens = r.in(s.seq_length, s.seq_length * s.micro_batch_size);
    if (packed) s.max_documents = r.in(1, std::min<int64_t>(s.seq_length, 5));
    s.in_flight = static_cast<int32_t>(r.one_of<int64_t>({1, 1, 2, 3}));
    s.evaluate_in_flight = r.percent(40);
    s.input_requires_grad = r.percent(80);
    s.input_storage = r.one_of({MDLM_INPUT_COPY, MDLM_INPUT_BORROW});
    s.share_scratch = r.percent(20);
}

MicroBatch draw_micro(Random &r, const Draw &d, bool packed, bool dropout) {
    MicroBatch m;
    mdlm_batch &b = m.batch;
    const int64_t most = d.shape.max_tokens != 0 ? d.shape.max_tokens : d.shape.seq_length * d.shape.micro_batch_size;
    b.seq_length = r.percent(50) ? d.shape.seq_length : r.in(1, d.shape.seq_length);
    b.micro_batch_size =
        std::min(r.percent(50) ? d.shape.micro_batch_size : r.in(1, d.shape.micro_batch_size), most / b.seq_length);
    if (packed) {
        b.micro_batch_size = 1;
        m.documents = {0};
        const auto seq = static_cast<int32_t>(b.seq_length);
        for (int64_t i = r.in(1, std::min<int64_t>(d.shape.max_documents, seq)); i > 1; --i)
            m.documents.push_back(static_cast<int32_t>(r.in(1, seq)));
        m.documents.push_back(seq);
        std::sort(m.documents.begin(), m.documents.end());
        m.documents.erase(std::unique(m.documents.begin(), m.documents.end()), m.documents.end());
        m.documents_by_tape = r.percent(40);
    }
    b.training = r.percent(dropout ? 90 : 50);
    if (r.percent(25)) b.attention_mask_type = r.one_of({MDLM_MASK_NO_MASK, MDLM_MASK_CAUSAL});
    if (d.config.mask_block_size > 0 && r.percent(25)) b.attention_mask_type = MDLM_MASK_BLOCK_CAUSAL;
    b.seed = r.next();
    b.step = static_cast<uint32_t>(r.next());
    b.micro_batch_index = static_cast<uint32_t>(r.in(0, 65535));
    m.dx_over_dy = r.percent(30);
    return m;
}

// Forwards in order, backwards in any; at most in_flight tapes are full at once.
void draw_events(Random &r, Draw &d) {
    std::vector<size_t> open;
    size_t next = 0;
    while (next < d.micro.size() || !open.empty()) {
        if ((open.empty() || d.shape.evaluate_in_flight != 0) && r.percent(25))
            d.events.push_back({Event::Kind::evaluate,
                                static_cast<size_t>(r.in(0, static_cast<int64_t>(d.micro.size()) - 1)), r.percent(50)});
        const bool room = open.size() < static_cast<size_t>(d.shape.in_flight);
        if (next < d.micro.size() && room && r.percent(8)) d.events.push_back({Event::Kind::abandon, next});
        if (next < d.micro.size() && room && (open.empty() || r.percent(70))) {
            d.events.push_back({Event::Kind::forward, next});
            open.push_back(next++);
        } else {
            const auto which = r.in(0, static_cast<int64_t>(open.size()) - 1);
            d.events.push_back({Event::Kind::backward, open[static_cast<size_t>(which)]});
            open.erase(open.begin() + which);
        }
    }
}

}  // namespace

bool Draw::packed() const {
    return std::any_of(micro.begin(), micro.end(), [](const MicroBatch &m) { return m.documents.size() > 2; });
}

bool Draw::drops() const {
    const bool on = config.hidden_dropout > 0 || config.attention_dropout > 0;
    return on && std::any_of(micro.begin(), micro.end(), [](const MicroBatch &m) { return m.batch.training != 0; });
}

Draw draw(uint64_t seed) {
    Draw d;
    d.seed = seed;
    Random r(Random(seed).next());
    const bool packed = r.percent(62), dropout = r.percent(60);
    draw_model(r, d.config);
    d.config.params_dtype = seed % 2 == 0 ? MDLM_DTYPE_F32 : MDLM_DTYPE_BF16;
    d.coarse = seed % 2 == 1;
    draw_positions(r, d.config);
    draw_attention(r, d.config, dropout);
    draw_setting(r, d.config);
    d.config.layer_offset = std::min(d.config.layer_offset, 4096 - d.config.num_layers);
    draw_edits(r, d.config, d.edits);
    draw_shape(r, d.shape, packed);
    if (r.percent(35)) {
        d.freeze = r.one_of({Draw::Freeze::first_layers, Draw::Freeze::first_layers, Draw::Freeze::some,
                             Draw::Freeze::some, Draw::Freeze::all_but_one, Draw::Freeze::everything});
        d.frozen_layers = r.in(1, d.config.num_layers);
    }
    for (int64_t i = r.in(1, 3); i > 0; --i) d.micro.push_back(draw_micro(r, d, packed && r.percent(80), dropout));
    draw_events(r, d);
    d.threads = static_cast<int32_t>(r.in(1, 3));
    if (r.percent(25)) d.other_threads = d.threads % 3 + 1;
    return d;
}

Draw draw_for_group(uint64_t seed, int64_t t) {
    Draw d = draw(seed);
    Random r(seed ^ 0x5eed0f9c0u);
    mdlm_config &c = d.config;
    c.tensor_model_parallel_size = t;
    // Whole groups of heads on every rank: as many to a group as drawn, one or two groups a rank.
    const int64_t groups = c.num_query_groups != 0 ? c.num_query_groups : c.num_attention_heads,
                  per = c.num_attention_heads / groups;
    c.num_attention_heads = t * (groups > 1 ? 2 : 1) * per;
    if (c.num_query_groups != 0) c.num_query_groups = c.num_attention_heads / per;
    c.ffn_hidden_size = (c.ffn_hidden_size + t - 1) / t * t;
    c.sequence_parallel = r.percent(45);
    if (c.sequence_parallel == 0) {
        if (c.recompute_method != MDLM_RECOMPUTE_METHOD_NONE) c.distribute_saved_activations = r.percent(60);
        d.edits.shard = r.one_of<int64_t>({0, 1, 3});
        return d;
    }
    // Every rank has as much of the sequence.
    const auto divided = [&](int64_t &seq) { seq = (seq + t - 1) / t * t; };
    divided(d.shape.seq_length);
    int64_t most = d.shape.seq_length;
    for (MicroBatch &m : d.micro) {
        divided(m.batch.seq_length);
        if (!m.documents.empty()) m.documents.back() = static_cast<int32_t>(m.batch.seq_length);
        most = std::max(most, m.batch.seq_length * m.batch.micro_batch_size);
    }
    if (d.shape.max_tokens != 0) d.shape.max_tokens = std::max(d.shape.max_tokens, most);
    return d;
}

Draw on_one_rank(Draw d, mdlm_dtype dtype) {
    mdlm_config &c = d.config;
    c.tensor_model_parallel_size = 1, c.sequence_parallel = c.distribute_saved_activations = 0;
    if (dtype != MDLM_DTYPE_DEFAULT) c.params_dtype = dtype;
    d.edits.shard = 0;
    return d;
}

Draw at_the_bound(Draw d) {
    const MicroBatch first = d.micro.front();
    for (MicroBatch &m : d.micro) {
        m.batch.seq_length = first.batch.seq_length, m.batch.micro_batch_size = first.batch.micro_batch_size;
        m.documents = first.documents;
    }
    d.shape.seq_length = first.batch.seq_length, d.shape.micro_batch_size = first.batch.micro_batch_size,
    d.shape.max_tokens = 0;
    d.shape.max_documents = std::min(d.shape.max_documents, d.shape.seq_length);
    d.events.push_back({Event::Kind::evaluate, 0});
    return d;
}

bool fills_tapes(const Draw &d) {
    int64_t out = 0, most = 0;
    for (const Event &e : d.events) {
        out += e.kind == Event::Kind::forward ? 1 : e.kind == Event::Kind::backward ? -1 : 0;
        most = std::max(most, out);
    }
    return most == d.shape.in_flight;
}

bool frozen(const Draw &d, int64_t index, int64_t layer, int64_t count) {
    Random r(d.seed * 31 + static_cast<uint64_t>(index));
    switch (d.freeze) {
    case Draw::Freeze::nothing: return false;
    case Draw::Freeze::first_layers: return layer < d.frozen_layers;
    case Draw::Freeze::some: return r.percent(35);
    case Draw::Freeze::all_but_one: return index != static_cast<int64_t>(d.seed % static_cast<uint64_t>(count));
    case Draw::Freeze::everything: return true;
    }
    return false;
}

}  // namespace property

// SPDX-License-Identifier: Apache-2.0
// What a rank keeps, and what the group sends, against formulas written by hand (arXiv 2205.05198, section 4, on the
// library's own tensors).
#include <algorithm>
#include <cstdio>

#include "cases.hpp"
#include "support/hold.hpp"
#include "support/repro.hpp"
#include "whole_step.hpp"

namespace parallel {
namespace {

using mdlm_test::expect_same;

constexpr uint64_t hidden = 64, heads = 8, d = hidden / heads, seq = 32, batch = 2, tokens = seq * batch;
constexpr uint64_t sbh = tokens * hidden, whole = 2 * sbh;  // elements of a layer boundary, and its bytes in bf16

const Settings diffusion = {{"hidden_size", "64"},         {"num_attention_heads", "8"},
                            {"ffn_hidden_size", "192"},    {"normalization", "RMSNorm"},
                            {"qk_layernorm", "1"},         {"add_bias_linear", "0"},
                            {"activation_func", "swiglu"}, {"attention_mask_type", "no_mask"},
                            {"params_dtype", "bf16"}};
const Settings gpt = {{"hidden_size", "64"}, {"num_attention_heads", "8"},     {"position_embedding_type", "none"},
                      {"add_qkv_bias", "1"}, {"attention_backend", "unfused"}, {"params_dtype", "bf16"}};

uint64_t up(uint64_t bytes) { return (bytes + 255) / 256 * 256; }
Settings layers(int64_t count) { return {{"num_layers", std::to_string(count)}}; }
Settings full(const char *method, int64_t count) {
    return {{"recompute_granularity", "full"},
            {"recompute_method", method},
            {"recompute_num_layers", std::to_string(count)}};
}
const Settings distributed = {{"distribute_saved_activations", "1"}};

WholeStep step_of(const Settings &settings) {
    WholeStep s;
    set_all(s.config, settings);
    s.seq = seq, s.batch = batch, s.numbers = false;
    s.parameter = [](const std::string &, int64_t rows, int64_t columns) {
        return Values(static_cast<size_t>(rows * columns), 1.0 / 16);
    };
    for (uint64_t i = 0; i < sbh; ++i)
        s.x.push_back(static_cast<double>(i % 7) - 3), s.dy.push_back(static_cast<double>(i % 5) - 2);
    return s;
}

// ---- saved bytes

// Of one layer, and of the final norm's input with its rows.
struct Saved {
    uint64_t layer, final_norm;
};
Saved none_of_diffusion(uint64_t t, bool sequence_parallel) {
    const uint64_t s = sequence_parallel ? t : 1;
    // x, both norms' outputs and x after attention 8; qkv 6, rotated q and k 4, context 2, fc1 12, activation 6 by
    // rank.
    const uint64_t tensors = 8 * sbh / s + 30 * sbh / t, norm = up(4 * tokens / s);
    const uint64_t rows = up(4 * 2 * heads / t * tokens), softmax = up(4 * 2 * heads / t * tokens);
    return {tensors + 2 * norm + rows + softmax, whole / s + norm};
}
Saved none_of_gpt(uint64_t t, bool sequence_parallel) {
    const uint64_t s = sequence_parallel ? t : 1;
    // qkv 6, context 2, fc1 8, activation 8 by rank; probabilities 2 heads s for each token.
    const uint64_t norm = up(8 * tokens / s);
    return {8 * sbh / s + 24 * sbh / t + 2 * heads * seq * tokens / t + 2 * norm, whole / s + norm};
}

void expect_saved(mdlm_comm *comm, const std::string &what, const Settings &settings,
                  const std::vector<uint64_t> &by_layer, uint64_t final_norm) {
    const WholeResult r = run_step(comm, step_of(settings));
    uint64_t total = final_norm;
    for (size_t i = 0; i < by_layer.size(); ++i) {
        expect_same(what + ": planned bytes of layer " + std::to_string(i), r.planned_saved.at(i), by_layer[i]);
        total += by_layer[i];
    }
    expect_same(what + ": saved_bytes", r.stats.saved_bytes, total);
    expect_same(what + ": mdlm_memory.saved_bytes", r.memory.saved_bytes, total);
}

std::string saved_bytes(mdlm_comm *comm, int, int size) {
    const auto t = static_cast<uint64_t>(size);
    for (const bool sp : {false, true}) {
        const Settings group = group_of(size, sp);
        const uint64_t input = whole / (sp ? t : 1);
        const Saved none = none_of_diffusion(t, sp), plain = none_of_gpt(t, sp);
        const std::string what = sp ? "sequence parallel, " : "";
        expect_saved(comm, what + "none", diffusion + layers(3) + group, {none.layer, none.layer, none.layer},
                     none.final_norm);
        expect_saved(comm, what + "none, GPT", gpt + layers(2) + group, {plain.layer, plain.layer}, plain.final_norm);
        expect_saved(comm, what + "full", diffusion + layers(3) + group + full("uniform", 1), {input, input, input},
                     none.final_norm);
        expect_saved(comm, what + "full, units of two", diffusion + layers(3) + group + full("uniform", 2),
                     {input, 0, input}, none.final_norm);
        expect_saved(comm, what + "block", diffusion + layers(3) + group + full("block", 1),
                     {input, none.layer, none.layer}, none.final_norm);
        if (sp) continue;
        const uint64_t share = whole / t;
        expect_saved(comm, "distributed", diffusion + layers(3) + group + full("uniform", 1) + distributed,
                     {share, share, share}, none.final_norm);
        expect_saved(comm, "distributed, units of two",
                     diffusion + layers(3) + group + full("uniform", 2) + distributed, {share, 0, share},
                     none.final_norm);
        expect_saved(comm, "distributed, block", diffusion + layers(3) + group + full("block", 1) + distributed,
                     {share, none.layer, none.layer}, none.final_norm);
    }
    return "";
}

// A share that t does not divide is padded.
std::string padded_share(mdlm_comm *comm, int, int size) {
    WholeStep s = step_of({});
    set_all(s.config, Settings{{"num_layers", "2"},
                               {"hidden_size", "515"},
                               {"num_attention_heads", "4"},
                               {"kv_channels", "4"},
                               {"ffn_hidden_size", "8"},
                               {"params_dtype", "bf16"},
                               {"final_layernorm", "0"}} +
                          group_of(size, false) + full("uniform", 1) + distributed);
    s.seq = 3, s.batch = 1;
    s.x.assign(3 * 515, 0.5), s.dy.assign(3 * 515, 0.25);
    const WholeResult r = run_step(comm, s);
    const uint64_t share = (3 * 515 + static_cast<uint64_t>(size) - 1) / static_cast<uint64_t>(size) * 2;
    expect_same("a padded share", r.planned_saved[0], up(share));
    expect_same("padded shares", r.stats.saved_bytes, 2 * up(share));
    // Of each layer, the shares with their padding, and what linear_proj's replay reduces.
    expect_same("bytes of replay", r.stats.replayed_collective_bytes,
                2 * (share * static_cast<uint64_t>(size) + 3 * 515 * 2));
    return "";
}

// ---- collectives

struct Traffic {
    uint64_t forward = 0, backward = 0, replayed = 0;  // each of a whole layer boundary
    uint64_t gradients = 0, gradient_elements = 0;
};

// Units of count layers from first on: those of a method, and of one layer where nothing is replayed as a unit.
std::vector<std::pair<int64_t, bool>> units_of(const char *method, int64_t count,
                                               int64_t num_layers) {  // layers, replays
    std::vector<std::pair<int64_t, bool>> units;
    if (std::string(method) == "uniform")
        for (int64_t i = 0; i < num_layers; i += count) units.emplace_back(std::min(count, num_layers - i), true);
    else
        for (int64_t i = 0; i < num_layers; ++i) units.emplace_back(1, i < count);
    return units;
}

// Two reductions a layer forward and two backward; with sequence parallelism each is a gather and a scatter, and the
// inputs of two linears are gathered once more for their weights' gradients. A unit makes the reductions of its layers
// again but the last; under sequence parallelism the gathers before them too, and the last layer's gathered inputs are
// those that its replay made.
Traffic expected(int64_t num_layers, bool sp, const std::vector<std::pair<int64_t, bool>> &units, bool shards) {
    Traffic e;
    e.forward = static_cast<uint64_t>((sp ? 4 : 2) * num_layers);
    e.backward = static_cast<uint64_t>((sp ? 4 : 2) * num_layers);
    for (const auto &[count, replays] : units) {
        const auto n = static_cast<uint64_t>(count);
        if (sp) e.replayed += 2 * n;  // inputs of linear_qkv and linear_fc1
        if (!replays) continue;
        e.replayed += 2 * n - 1;  // outputs of linear_proj and linear_fc2, but for the last layer's linear_fc2
        if (sp) e.replayed += 2 * (n - 1);  // a layer that runs forward again gathers for itself
        if (shards) e.replayed += 1;
    }
    return e;
}

void expect_traffic(mdlm_comm *comm, const std::string &what, const WholeStep &step, const Traffic &e) {
    const mdlm_tape_stats s = run_step(comm, step).stats;
    expect_same(what + ": forward_collectives", s.forward_collectives, e.forward);
    expect_same(what + ": backward_collectives", s.backward_collectives, e.backward);
    expect_same(what + ": replayed_collectives", s.replayed_collectives, e.replayed);
    expect_same(what + ": gradient_collectives", s.gradient_collectives, e.gradients);
    expect_same(what + ": forward_collective_bytes", s.forward_collective_bytes, e.forward * whole);
    expect_same(what + ": backward_collective_bytes", s.backward_collective_bytes, e.backward * whole);
    expect_same(what + ": replayed_collective_bytes", s.replayed_collective_bytes, e.replayed * whole);
    expect_same(what + ": gradient_collective_bytes", s.gradient_collective_bytes, 4 * e.gradient_elements);
}

// Elements of a layer's parameters whose gradients every rank has in part, and of the final norm's.
struct Partial {
    uint64_t layer, final_norm;
};

std::string collectives(mdlm_comm *comm, int rank, int size) {
    int settings = 0;
    for (const bool is_gpt : {false, true})
        for (const bool sp : {false, true})
            for (int64_t n = 1; n <= 4; ++n) {
                if ((is_gpt && n == 3) || (mdlm_test::sanitized && n > 2)) continue;
                // RMSNorm has a weight, LayerNorm a bias too; the GPT has no norms of q and k, and biases after
                // linear_proj and linear_fc2.
                const Partial p = is_gpt ? Partial{sp ? 4 * hidden + 2 * hidden : 0, sp ? 2 * hidden : 0}
                                         : Partial{(sp ? 2 * hidden : 0) + 2 * d, sp ? hidden : 0};
                const Settings base = (is_gpt ? gpt : diffusion) + layers(n) + group_of(size, sp);
                const auto count = static_cast<uint64_t>(n);
                const auto check = [&](const std::string &name, const Settings &on_top, Traffic e) {
                    e.gradients = (p.layer > 0 ? count : 0) + (p.final_norm > 0);
                    e.gradient_elements = p.layer * count + p.final_norm;
                    const std::string what = std::string(is_gpt ? "GPT, " : "diffusion, ") +
                                             (sp ? "sequence parallel, " : "") + std::to_string(n) + " layers, " + name;
                    expect_traffic(comm, what, step_of(base + on_top), e);
                    ++settings;
                };
                const Traffic none = expected(n, sp, units_of("block", 0, n), false);
                for (const Recompute &r : recompute_settings(n, false))
                    if (!r.name.starts_with("full")) check(r.name, r.settings, none);
                for (const char *method : {"uniform", "block"})
                    for (int64_t k = 1; k <= n; ++k)
                        for (const bool shards : {false, true}) {
                            if (shards && sp) continue;
                            check(std::string(method) + " " + std::to_string(k) + (shards ? ", distributed" : ""),
                                  full(method, k) + (shards ? distributed : Settings{}),
                                  expected(n, sp, units_of(method, k, n), shards));
                        }
            }
    if (rank == 0)
        std::printf("parallel: collectives of %d settings at t = %d are those of the formulas\n", settings, size);
    return "";
}

// What is frozen is not summed, and a gradient that nobody wants is not reduced.
std::string frozen(mdlm_comm *comm, int, int size) {
    const Settings two = diffusion + layers(2) + group_of(size, false),
                   sequence = diffusion + layers(2) + group_of(size, true);
    WholeStep s = step_of(two);
    s.frozen = {"q_layernorm.weight"};
    expect_traffic(comm, "q's norm frozen", s, {4, 4, 0, 2, 2 * d});
    s.frozen = {"q_layernorm.weight", "k_layernorm.weight"};
    expect_traffic(comm, "norms of q and k frozen", s, {4, 4, 0, 0, 0});
    s.frozen = {"layers.0.self_attention.q_layernorm.weight", "layers.0.self_attention.k_layernorm.weight"};
    expect_traffic(comm, "norms of the first layer's q and k frozen", s, {4, 4, 0, 1, 2 * d});
    s.frozen = {};
    s.input_gradient = false;
    // The first norm still wants a gradient; without it nothing is in front of the first linear.
    expect_traffic(comm, "no dx", s, {4, 4, 0, 2, 4 * d});
    s.frozen = {"layers.0.input_layernorm.weight"};
    expect_traffic(comm, "no dx, first norm frozen", s, {4, 3, 0, 2, 4 * d});

    s = step_of(sequence);
    s.frozen = {"final_layernorm.weight"};
    expect_traffic(comm, "sequence parallel, final norm frozen", s, {8, 8, 4, 2, 2 * (2 * hidden + 2 * d)});
    s.frozen = {"layernorm.weight"};
    expect_traffic(comm, "sequence parallel, all norms frozen", s, {8, 8, 4, 0, 0});
    // The weights alone ask for the gathered inputs.
    s.frozen = {"linear_qkv.weight", "linear_fc1.weight"};
    expect_traffic(comm, "sequence parallel, linears after a gather frozen", s,
                   {8, 8, 0, 3, 2 * (2 * hidden + 2 * d) + hidden});
    return "";
}

}  // namespace

std::vector<Case> closed_form_cases() {
    std::vector<Case> list;
    for (const int t : {2, 4}) {
        const std::string at = ", t = " + std::to_string(t);
        list.push_back({"closed forms: saved bytes of a rank" + at, t, saved_bytes});
        list.push_back({"closed forms: a padded share" + at, t, padded_share});
        list.push_back({"closed forms: collectives and their bytes" + at, t, collectives});
        list.push_back({"closed forms: collectives of what is frozen" + at, t, frozen});
    }
    return list;
}

}  // namespace parallel

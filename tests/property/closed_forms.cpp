// SPDX-License-Identifier: Apache-2.0
// Replayed ops and floating point operations, as planned and as counted while running, against formulas written by
// hand.
#include <doctest/doctest.h>

#include <algorithm>
#include <map>

#include "settings.hpp"

namespace {

using namespace property;

// Operations of a forward op, for n tokens: a linear 2 n in out; norms 5 an element, with 11 for the norm and turn of q
// and k, 8 for the activation, 3 for bias, dropout and add; softmax attention 2 (fused: scores and context) or 1
// products of 2 s n h, softmax 5 a score.
struct Model {
    Settings settings;
    int64_t seq, batch, hidden, heads, ffn;
    bool gated, rotated, fused;

    int64_t n() const { return seq * batch; }
    std::map<std::string, int64_t> flops() const {
        std::map<std::string, int64_t> f;
        const int64_t product = 2 * seq * n() * hidden, linear = 2 * n() * hidden;
        f["norm1"] = f["norm2"] = 5 * n() * hidden;
        f["qkv"] = linear * 3 * hidden, f["proj"] = linear * hidden;
        f["fc1"] = linear * ffn * (gated ? 2 : 1), f["fc2"] = linear * ffn;
        if (rotated) f["rotate"] = 11 * n() * 2 * hidden;
        if (fused) f["attention"] = 2 * product;
        else f["scores"] = f["context"] = product, f["softmax"] = 5 * n() * seq * heads;
        f["act"] = 8 * n() * ffn;
        f["add1"] = f["add2"] = 3 * n() * hidden;
        return f;
    }
    static bool is_matmul(const std::string &op) {
        for (const char *m : {"qkv", "proj", "fc1", "fc2", "attention", "scores", "context"})
            if (op == m) return true;
        return false;
    }
};

Model small_diffusion() { return {diffusion(32, 2), 24, 2, 32, 2, 96, true, true, true}; }
Model small_gpt() { return {gpt(32, 4), 16, 2, 32, 4, 128, false, false, false}; }

using Ops = std::vector<std::string>;

struct Sum {
    int64_t ops = 0, flops = 0, matmul = 0;
    void add(const Model &m, const Ops &list) {
        const auto f = m.flops();
        for (const std::string &op : list) {
            ++ops, flops += f.at(op);
            if (Model::is_matmul(op)) matmul += f.at(op);
        }
    }
};

Ops all_of(const Model &m) {
    Ops list;
    for (const auto &[op, flops] : m.flops()) list.push_back(op);
    return list;
}
// The last layer of a unit does without its last linear and what follows.
Ops last_of(const Model &m) {
    Ops list = all_of(m);
    std::erase(list, "fc2");
    std::erase(list, "add2");
    return list;
}

// By layer, what it replays; planned, and counted.
void compare(const Model &m, const Settings &policy, const std::vector<Ops> &replayed) {
    const auto count = static_cast<int64_t>(replayed.size());
    const Settings settings = m.settings + layers(count) + policy;
    const auto planned = plan_layers(settings, m.seq, m.batch);
    const mdlm_tape_stats stats = step(settings, m.seq, m.batch);
    Sum total;
    for (size_t i = 0; i < replayed.size(); ++i) {
        Sum layer;
        layer.add(m, replayed[i]);
        total.add(m, replayed[i]);
        INFO("layer ", i);
        CHECK(static_cast<int64_t>(planned[i].replayed_ops) == layer.ops);
        CHECK(static_cast<int64_t>(planned[i].replayed_flops) == layer.flops);
        Sum forward;
        forward.add(m, all_of(m));
        CHECK(static_cast<int64_t>(planned[i].forward_flops) == forward.flops);
    }
    CHECK(static_cast<int64_t>(stats.replayed_ops) == total.ops);
    CHECK(static_cast<int64_t>(stats.replayed_flops) == total.flops);
    CHECK(static_cast<int64_t>(stats.replayed_matmul_flops) == total.matmul);
    Sum forward;
    forward.add(m, all_of(m));
    CHECK(static_cast<int64_t>(stats.forward_ops) == forward.ops * count + 1);  // and the final norm
    CHECK(static_cast<int64_t>(stats.forward_flops) == forward.flops * count + 5 * m.n() * m.hidden);
}

// Units as uniform makes them: of `count` layers, the last may be shorter.
std::vector<Ops> uniform(const Model &m, int64_t num_layers, int64_t count) {
    std::vector<Ops> replayed;
    for (int64_t i = 0; i < num_layers; ++i)
        replayed.push_back((i + 1) % count == 0 || i + 1 == num_layers ? last_of(m) : all_of(m));
    return replayed;
}

}  // namespace

TEST_CASE("replayed ops and FLOPs: none, and offloading alone") {
    for (const Model &m : {small_diffusion(), small_gpt()}) {
        compare(m, {}, {{}, {}, {}});
        compare(m, {{"cpu_offloading", "1"}, {"cpu_offloading_num_layers", "2"}}, {{}, {}, {}});
    }
}

TEST_CASE("replayed ops and FLOPs: selective, every set of modules") {
    for (uint32_t modules = 1; modules < 64; ++modules)
        for (const Model &m : {small_diffusion(), small_gpt()}) {
            Ops ops;
            const auto on = [&](uint32_t module, const Ops &list) {
                for (const std::string &op : list)
                    if ((modules & module) != 0 && std::count(ops.begin(), ops.end(), op) == 0) ops.push_back(op);
            };
            std::string names;
            const std::pair<uint32_t, const char *> all[] = {
                {MDLM_RECOMPUTE_MODULE_CORE_ATTN, "core_attn"},       {MDLM_RECOMPUTE_MODULE_QKV, "qkv"},
                {MDLM_RECOMPUTE_MODULE_QK_NORM_ROPE, "qk_norm_rope"}, {MDLM_RECOMPUTE_MODULE_LAYERNORM, "layernorm"},
                {MDLM_RECOMPUTE_MODULE_MLP_ACT, "mlp_act"},           {MDLM_RECOMPUTE_MODULE_MLP, "mlp"}};
            for (const auto &[module, name] : all)
                if ((modules & module) != 0) names += (names.empty() ? "" : ",") + std::string(name);
            on(MDLM_RECOMPUTE_MODULE_CORE_ATTN, m.fused ? Ops{"attention"} : Ops{"scores", "softmax", "context"});
            on(MDLM_RECOMPUTE_MODULE_QKV, m.rotated ? Ops{"qkv", "rotate"} : Ops{"qkv"});
            on(MDLM_RECOMPUTE_MODULE_QK_NORM_ROPE, m.rotated ? Ops{"rotate"} : Ops{});
            on(MDLM_RECOMPUTE_MODULE_LAYERNORM, {"norm1", "norm2"});
            on(MDLM_RECOMPUTE_MODULE_MLP_ACT, {"act"});
            on(MDLM_RECOMPUTE_MODULE_MLP, {"fc1", "act"});
            INFO("modules ", names);
            compare(m, selective(names), {ops, ops});
        }
    // The default is qkv and core_attn: the article's.
    compare(small_diffusion(), {{"recompute_granularity", "selective"}},
            {{"qkv", "rotate", "attention"}, {"qkv", "rotate", "attention"}});
}

TEST_CASE("replayed ops and FLOPs: full, uniform with every count and block with every count") {
    const int64_t num_layers = 5;
    for (const Model &m : {small_diffusion(), small_gpt()})
        for (int64_t count = 1; count <= num_layers; ++count) {
            INFO("count ", count);
            compare(m, full("uniform", count), uniform(m, num_layers, count));
            compare(m, full("uniform", count) + Settings{{"cpu_offloading", "1"}, {"cpu_offloading_num_layers", "3"}},
                    uniform(m, num_layers, count));
            std::vector<Ops> block(static_cast<size_t>(num_layers));
            for (int64_t i = 0; i < count; ++i) block[static_cast<size_t>(i)] = last_of(m);
            compare(m, full("block", count), block);
        }
}

TEST_CASE("a unit of N diffusion layers replays (26 N - 6) / 78 N of a layer's linear FLOPs") {
    const Model m = small_diffusion();
    // Linears are 26 parts forward, 78 in all.
    const int64_t part = m.n() * m.hidden * m.hidden, attention = 4 * m.seq * m.n() * m.hidden;
    for (int64_t layers_of_unit = 1; layers_of_unit <= 6; ++layers_of_unit) {
        const mdlm_tape_stats stats =
            step(m.settings + layers(layers_of_unit) + full("uniform", layers_of_unit), m.seq, m.batch);
        CHECK(static_cast<int64_t>(stats.replayed_matmul_flops) - layers_of_unit * attention ==
              (26 * layers_of_unit - 6) * part);
        // Forward and backward: the linears' 78 parts a layer, fused attention's 2 + 4 products, and what is no matmul.
        const mdlm_tape_stats none = step(m.settings + layers(layers_of_unit), m.seq, m.batch);
        CHECK(none.forward_flops + none.backward_flops == stats.forward_flops + stats.backward_flops);
        CHECK(static_cast<int64_t>(none.forward_flops + none.backward_flops) >
              layers_of_unit * (78 * part + 3 * attention));
    }
}

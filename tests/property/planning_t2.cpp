// SPDX-License-Identifier: Apache-2.0
// Plans for a tensor-parallel group (tests/parallel runs them): which collectives are in the program, how often each is
// in a schedule, and what a rank keeps. The formulas are those of arXiv 2205.05198, section 4, on the diffusion layer's
// own tensors.
#include <doctest/doctest.h>

#include <map>

#include "plan/plan.hpp"
#include "settings.hpp"

namespace {

using namespace property;

constexpr int64_t t = 2, hidden = 64, heads = 4, seq = 32, batch = 2, tokens = seq * batch;

const Settings plain = {{"tensor_model_parallel_size", "2"}};
const Settings sequence = {{"tensor_model_parallel_size", "2"}, {"sequence_parallel", "1"}};
const Settings distributed = {{"distribute_saved_activations", "1"}};

int64_t up(int64_t bytes) { return (bytes + 255) / 256 * 256; }

struct Counts {
    std::map<std::string, int64_t> forward, backward;
    bool operator==(const Counts &) const = default;
};

// Collectives of layers [first, first + count), replays with the backward; where a rank's share of a unit's input is
// cut or gathered.
Counts collectives(const Settings &settings, int64_t first, int64_t count) {
    const mdlm_config c = config_of(settings);
    const mdlm::Plan plan(c, shape_of(seq, batch), mdlm::traits_of(MDLM_DEVICE_CPU, 1), {});
    const mdlm::BlockPlan &p = plan.block_plan();
    Counts counts;
    const auto take = [&](const std::vector<mdlm::PlanEntry> &entries, std::map<std::string, int64_t> &to) {
        for (const mdlm::PlanEntry &e : entries) {
            if (e.item < first || e.item >= first + count) continue;
            if (e.kind == mdlm::PlanEntry::Kind::shard_input) ++to["shard"];
            if (e.kind == mdlm::PlanEntry::Kind::gather_input) ++to["gather"];
            if (e.kind != mdlm::PlanEntry::Kind::forward && e.kind != mdlm::PlanEntry::Kind::backward) continue;
            for (const mdlm::ScheduledOp &s :
                 e.kind == mdlm::PlanEntry::Kind::backward ? e.schedule->backward : e.schedule->forward) {
                const std::string name = e.schedule->op(s).name();
                if (name == "all_reduce" || name == "all_gather" || name == "reduce_scatter") ++to[name];
            }
        }
    };
    take(p.forward, counts.forward);
    take(p.backward, counts.backward);
    return counts;
}

Settings model(int64_t count) { return diffusion(hidden, heads) + layers(count); }

}  // namespace

TEST_CASE("t = 1: no collective is in any schedule") {
    CHECK(collectives(model(3), 0, 3) == Counts{});
    CHECK(collectives(model(3) + Settings{{"sequence_parallel", "1"}}, 0, 3) == Counts{});
    CHECK(collectives(model(3) + full("uniform", 2), 0, 3) == Counts{});
}

TEST_CASE("t = 2: two all-reduces forward and two backward, a unit's last layer one more in replay, the others two") {
    CHECK(collectives(model(3) + plain, 1, 1) == Counts{{{"all_reduce", 2}}, {{"all_reduce", 2}}});
    CHECK(collectives(model(3) + plain + selective("qkv,core_attn,layernorm,mlp"), 1, 1) ==
          Counts{{{"all_reduce", 2}}, {{"all_reduce", 2}}});
    CHECK(collectives(model(3) + plain + full("uniform", 1), 1, 1) == Counts{{{"all_reduce", 2}}, {{"all_reduce", 3}}});
    CHECK(collectives(model(4) + plain + full("uniform", 2), 0, 2) ==
          Counts{{{"all_reduce", 4}}, {{"all_reduce", 4 + 2 + 1}}});
    CHECK(collectives(model(3) + plain + full("uniform", 1) + distributed, 1, 1) ==
          Counts{{{"all_reduce", 2}, {"shard", 1}}, {{"all_reduce", 3}, {"gather", 1}}});
}

TEST_CASE("t = 2 with sequence parallelism: forward 2 gathers and 2 scatters, backward 4 and 2") {
    const std::map<std::string, int64_t> forward = {{"all_gather", 2}, {"reduce_scatter", 2}};
    CHECK(collectives(model(3) + sequence, 1, 1) == Counts{forward, {{"all_gather", 4}, {"reduce_scatter", 2}}});
    CHECK(collectives(model(3) + sequence + selective("qkv,core_attn,layernorm,mlp"), 1, 1) ==
          Counts{forward, {{"all_gather", 4}, {"reduce_scatter", 2}}});
    // The gathered inputs that a replay makes serve the parameter gradients, too.
    CHECK(collectives(model(3) + sequence + full("uniform", 1), 1, 1) ==
          Counts{forward, {{"all_gather", 4}, {"reduce_scatter", 2 + 1}}});
    // A unit's first layer: 2 gathers and 2 scatters again, then as any other.
    CHECK(collectives(model(4) + sequence + full("uniform", 2), 0, 2) ==
          Counts{{{"all_gather", 4}, {"reduce_scatter", 4}},
                 {{"all_gather", 2 + 4 + 4}, {"reduce_scatter", 2 + 2 + 2 + 1}}});
}

TEST_CASE("t = 2: saved bytes of a rank") {
    const auto saved = [](const Settings &settings) {
        return static_cast<int64_t>(plan_layers(model(3) + settings, seq, batch)[1].saved_bytes);
    };
    const int64_t sbh = tokens * hidden, norm = 4 * tokens, rows = 4 * 2 * heads / t * tokens, softmax = rows;
    // x, both norms' outputs and x after attention are whole; qkv 6, rotated 4, context 2, fc1 12, activation 6 are
    // split.
    CHECK(saved(plain) == (8 + 30 / t) * sbh + up(norm) * 2 + up(rows) + up(softmax));
    // All are split, the norms' rows as well.
    CHECK(saved(sequence) == 38 / t * sbh + up(norm / t) * 2 + up(rows) + up(softmax));
    const Settings units = full("uniform", 1);
    CHECK(saved(plain + units) == 2 * sbh);
    CHECK(saved(plain + units + distributed) == 2 * sbh / t);
    CHECK(saved(sequence + units) == 2 * sbh / t);
    CHECK(saved(plain + full("uniform", 3)) == 0);  // inside a unit
}

TEST_CASE("t = 2: a share of an input whose size t does not divide is padded") {
    const Settings odd = {{"num_layers", "2"},  {"hidden_size", "515"},   {"num_attention_heads", "2"},
                          {"kv_channels", "4"}, {"ffn_hidden_size", "8"}, {"params_dtype", "bf16"}};
    const auto layer = plan_layers(odd + plain + full("uniform", 1) + distributed, 3, 1)[1];
    CHECK(static_cast<int64_t>(layer.saved_bytes) == up((3 * 515 + 1) / 2 * 2));
}

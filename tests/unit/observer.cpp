// SPDX-License-Identifier: Apache-2.0
// The observer of a context: it is told of exactly the ops that the tape counts, in order, in the right phase, and
// changes nothing.
#include <doctest/doctest.h>

#include <algorithm>
#include <functional>
#include <map>
#include <string>
#include <vector>

#include "support/checks.hpp"
#include "support/rig.hpp"

using mdlm_test::Rig;

namespace {

struct Seen {
    std::vector<mdlm_op_event> events;
    std::function<void()> also;
    static void call(void *payload, const mdlm_op_event *event) {
        auto &self = *static_cast<Seen *>(payload);
        self.events.push_back(*event);
        if (self.also) self.also();
    }
};

// What a plan moves has names of its own; the rest are ops, which tapes count.
bool is_op(const mdlm_op_event &e) {
    for (const char *moved : {"copy_input", "to_host", "from_host", "shard_input", "gather_input"})
        if (std::string(e.op) == moved) return false;
    return true;
}

struct Sum {
    uint64_t ops = 0, flops = 0, matmul_flops = 0;
};
Sum sum(const std::vector<mdlm_op_event> &events, mdlm_phase phase) {
    Sum s;
    for (const mdlm_op_event &e : events) {
        if (e.phase != phase || !is_op(e)) continue;
        s.ops += 1, s.flops += e.flops;
        if (e.work == MDLM_WORK_MATMUL || e.work == MDLM_WORK_ATTENTION) s.matmul_flops += e.flops;
    }
    return s;
}

int64_t count(const std::vector<mdlm_op_event> &events, const std::string &op) {
    return std::count_if(events.begin(), events.end(), [&](const mdlm_op_event &e) { return e.op == op; });
}

using Settings = std::vector<std::pair<const char *, const char *>>;

}  // namespace

TEST_CASE("the observer is told of the ops that tapes count, and the results keep their bits") {
    const std::vector<Settings> cases = {
        {},
        {{"recompute_granularity", "selective"}},
        {{"recompute_granularity", "selective"}, {"recompute_modules", "layernorm,mlp_act"}, {"qk_layernorm", "1"}},
        {{"recompute_granularity", "full"}},
        {{"recompute_granularity", "full"}, {"recompute_method", "uniform"}, {"recompute_num_layers", "2"}},
        {{"recompute_granularity", "full"}, {"recompute_method", "block"}, {"recompute_num_layers", "1"}},
        {{"attention_backend", "unfused"}, {"recompute_granularity", "selective"}, {"recompute_modules", "core_attn"}},
        {{"cpu_offloading", "1"}, {"cpu_offloading_num_layers", "2"}},
    };
    for (size_t i = 0; i < cases.size(); ++i) {
        for (const mdlm_device_kind device : {MDLM_DEVICE_REFERENCE, MDLM_DEVICE_CPU}) {
            CAPTURE(i);
            CAPTURE(device);
            Rig rig;
            for (const auto &setting : cases[i])
                REQUIRE_OK(mdlm_config_set(&rig.config, setting.first, setting.second));
            rig.config.layer_offset = 5;
            rig.desc.device = device;
            REQUIRE_OK(rig.open());
            REQUIRE_OK(rig.step());
            const uint64_t good = rig.digest();

            Seen forward, backward;
            REQUIRE_OK(mdlm_params_zero_grads(rig.block));
            REQUIRE_OK(mdlm_context_set_observer(rig.context, Seen::call, &forward));
            REQUIRE_OK(rig.forward());
            REQUIRE_OK(mdlm_context_set_observer(rig.context, Seen::call, &backward));
            REQUIRE_OK(rig.backward());
            CHECK(rig.digest() == good);

            mdlm_tape_stats stats = MDLM_TAPE_STATS_INIT;
            REQUIRE_OK(mdlm_tape_get_stats(rig.tape, &stats));
            const Sum f = sum(forward.events, MDLM_PHASE_FORWARD), b = sum(backward.events, MDLM_PHASE_BACKWARD),
                      r = sum(backward.events, MDLM_PHASE_REPLAY);
            CHECK(f.ops == stats.forward_ops);
            CHECK(f.flops == stats.forward_flops);
            CHECK(b.ops == stats.backward_ops);
            CHECK(b.flops == stats.backward_flops);
            CHECK(r.ops == stats.replayed_ops);
            CHECK(r.flops == stats.replayed_flops);
            CHECK(r.matmul_flops == stats.replayed_matmul_flops);
            CHECK((r.ops > 0) == (rig.config.recompute_granularity != MDLM_RECOMPUTE_GRANULARITY_NONE));
            for (const mdlm_op_event &e : forward.events) CHECK(e.phase == MDLM_PHASE_FORWARD);
            for (const mdlm_op_event &e : backward.events) CHECK(e.phase != MDLM_PHASE_FORWARD);

            const int64_t layers = rig.config.num_layers;
            CHECK(count(forward.events, "linear") == 4 * layers);
            CHECK(count(backward.events, "linear_wgrad") == 4 * layers);
            CHECK(count(backward.events, "linear_dgrad") == 4 * layers);
            CHECK(count(forward.events, "to_host") == count(backward.events, "from_host"));
            CHECK((count(forward.events, "to_host") > 0) == (rig.config.cpu_offloading != 0));
            CHECK(forward.events.back().layer == 5 + layers);  // the final norm,
            CHECK(std::string(forward.events.back().op) == "norm");
            CHECK(backward.events.back().layer == 5);  // and the first layer

            int64_t before = 0;
            std::map<std::string, int64_t> widths;
            for (const std::vector<mdlm_op_event> *events : {&forward.events, &backward.events}) {
                for (const mdlm_op_event &e : *events) {
                    CAPTURE(std::string(e.op));
                    CAPTURE(std::string(e.tensor));
                    CHECK(e.struct_size == sizeof e);
                    CHECK(e.begin_ns >= before);
                    CHECK(e.end_ns >= e.begin_ns);
                    before = e.end_ns;
                    CHECK(e.layer >= 5);
                    CHECK(e.layer <= 5 + layers);
                    CHECK(e.bytes > 0);
                    CHECK((e.flops == 0) == (e.work == MDLM_WORK_TRANSFER));
                    CHECK((e.n > 0) == (e.work == MDLM_WORK_MATMUL));
                    if (e.work != MDLM_WORK_MATMUL) continue;
                    CHECK(e.m == 16);
                    CHECK(e.flops == static_cast<uint64_t>(2 * e.m * e.n * e.k));
                    // The gradients of a linear are told by the name of what the linear makes.
                    const auto known = widths.emplace(e.tensor, e.n);
                    CHECK(known.first->second == e.n);
                }
            }
            CHECK(widths == std::map<std::string, int64_t>{
                                {"linear_qkv", 48}, {"linear_proj", 16}, {"linear_fc1", 64}, {"linear_fc2", 16}});
        }
    }
}

TEST_CASE("the observer: off, evaluation, and calls from inside") {
    Rig rig;
    REQUIRE_OK(rig.open());
    REQUIRE_OK(rig.step());
    const uint64_t good = rig.digest();
    Seen seen;
    REQUIRE_OK(mdlm_context_set_observer(rig.context, Seen::call, &seen));
    REQUIRE_OK(rig.evaluate());
    const Sum evaluated = sum(seen.events, MDLM_PHASE_FORWARD);
    CHECK(evaluated.ops == seen.events.size());
    mdlm_tape_stats stats = MDLM_TAPE_STATS_INIT;
    REQUIRE_OK(mdlm_tape_get_stats(rig.tape, &stats));
    CHECK(evaluated.flops == stats.forward_flops);

    seen.events.clear();
    size_t busy = 0;
    seen.also = [&] { busy += mdlm_context_set_observer(rig.context, nullptr, nullptr) == MDLM_ERROR_BUSY; };
    REQUIRE_OK(rig.step());
    CHECK(rig.digest() == good);
    CHECK(busy == seen.events.size());
    CHECK(busy > 0);

    seen.also = nullptr;
    seen.events.clear();
    REQUIRE_OK(mdlm_context_set_observer(rig.context, nullptr, &seen));
    REQUIRE_OK(rig.step());
    CHECK(rig.digest() == good);
    CHECK(seen.events.empty());
}

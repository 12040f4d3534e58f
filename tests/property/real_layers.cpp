// SPDX-License-Identifier: Apache-2.0
// What a layer of two published models keeps until backward, against the formulas (arXiv 2205.05198 counts the same
// way), after a real run of scaled shapes; and how close the packed heights at the real ones come to the bytes that are
// alive.
#include <doctest/doctest.h>

#include <algorithm>
#include <cstdio>

#include "debug_executor.hpp"
#include "settings.hpp"
#include "support/repro.hpp"

namespace {

using namespace property;

// Bytes of 16-bit tensors that are so many hidden states wide, each rounded up to the 256 bytes it is allocated in; and
// the same of statistics, in bytes a token.
struct Kept {
    std::vector<double> tensors;  // in units of 2 s b h / 2: "sbh"
    std::vector<int64_t> statistics;
    int64_t bytes(int64_t tokens, int64_t hidden) const {
        const auto round = [](int64_t b) { return (b + 255) / 256 * 256; };
        int64_t sum = 0;
        for (double t : tensors) sum += round(static_cast<int64_t>(t * double(tokens * hidden)));
        for (int64_t t : statistics) sum += round(t * tokens);
        return sum;
    }
    double sbh() const {
        double sum = 0;
        for (double t : tensors) sum += t;
        return sum;
    }
};

int64_t of_one_layer(const Settings &model, const Settings &policy, int64_t seq, int64_t batch) {
    const mdlm_tape_stats three = step(model + layers(3) + policy, seq, batch),
                          two = step(model + layers(2) + policy, seq, batch);
    return static_cast<int64_t>(three.saved_bytes - two.saved_bytes);
}

void compare(const char *name, const Settings &model, const Settings &policy, int64_t seq, int64_t batch,
             int64_t hidden, double sbh, const Kept &kept) {
    INFO(name, ", s = ", seq, ", b = ", batch, ", h = ", hidden);
    CHECK(kept.sbh() == doctest::Approx(sbh));
    const int64_t seen = of_one_layer(model, policy, seq, batch);
    CHECK(seen == kept.bytes(seq * batch, hidden));
    CHECK(seen == static_cast<int64_t>(plan_layers(model + layers(3) + policy, seq, batch)[1].saved_bytes));
}

const char *const three_modules = "layernorm,qk_norm_rope,mlp_act";

}  // namespace

TEST_CASE("saved bytes of a diffusion layer: 38 sbh, 24, 26 and 2, and the statistics") {
    const int64_t hidden = 64, heads = 4;
    const Settings model = diffusion(hidden, heads);
    const int64_t norm = 4, rows = 4 * (heads + heads), softmax = 4 * 2 * heads;  // maximum and sum
    for (const auto &[seq, batch] :
         {std::pair<int64_t, int64_t>{32, 2}, {64, 1}, {19, 3}}) {  // the last does not divide by anything
        // x, norm 1, qkv, rotated q and k, context, x after attention, norm 2, fc1, activation
        compare("none", model, {}, seq, batch, hidden, 38, {{2, 2, 6, 4, 2, 2, 2, 12, 6}, {norm, rows, softmax, norm}});
        compare("three modules", model, selective(three_modules), seq, batch, hidden, 24,
                {{2, 6, 2, 2, 12}, {softmax}});
        compare("selective", model, {{"recompute_granularity", "selective"}}, seq, batch, hidden, 26,
                {{2, 2, 2, 2, 12, 6}, {norm, norm}});
        compare("full", model, {{"recompute_granularity", "full"}}, seq, batch, hidden, 2, {{2}, {}});
    }
}

TEST_CASE("saved bytes of GPT-3's layer with its shape's ratios: 64 sbh, and 30 with the core attention replayed") {
    const int64_t hidden = 64, heads = 4, seq = 256, norm = 8;  // heads s / h = 16
    const Settings model = gpt(hidden, heads);
    for (int64_t batch : {1, 2}) {
        // x, norm 1, qkv, probabilities, context, x after attention, norm 2, fc1, activation
        compare("none", model, {}, seq, batch, hidden, 64,
                {{2, 2, 6, 2.0 * heads * seq / hidden, 2, 2, 2, 8, 8}, {norm, norm}});
        compare("core_attn", model, selective("core_attn"), seq, batch, hidden, 30,
                {{2, 2, 6, 2, 2, 8, 8}, {norm, norm}});
        compare("full", model, {{"recompute_granularity", "full"}}, seq, batch, hidden, 2, {{2}, {}});
    }
}

TEST_CASE("packing loss of real layers is at most 5 %") {
    const std::pair<const char *, Settings> models[] = {
        {"diffusion h=2048", diffusion(2048, 16)},
        {"diffusion h=2048, 4 groups", diffusion(2048, 16) + Settings{{"num_query_groups", "4"}}},
        {"GPT-3 h=6144", gpt(6144, 64)},
        {"GPT-3 h=12288", gpt(12288, 96)}};
    const std::pair<const char *, Settings> policies[] = {{"none", {}},
                                                          {"selective", {{"recompute_granularity", "selective"}}},
                                                          {"core_attn", selective("core_attn")},
                                                          {"three modules", selective(three_modules)},
                                                          {"mlp", selective("mlp")},
                                                          {"full", full("uniform", 1)},
                                                          {"full, units of 2", full("uniform", 2)}};
    for (const auto &[model_name, model] : models)
        for (const auto &[policy_name, policy] : policies) {
            double worst = 0;
            uint64_t bytes = 0;
            for (int32_t threads : {1, 2, 16})
                for (int64_t batch : {1, 4})
                    for (const mdlm_plan_layer &l : plan_layers(model + layers(4) + policy, 2048, batch, threads)) {
                        const uint64_t used = std::max(l.forward_bytes, l.backward_bytes);
                        if (used == 0) continue;
                        const double loss = double(used) / double(l.most_alive_bytes) - 1;
                        if (loss >= worst) worst = loss, bytes = used;
                    }
            std::printf("memory: %-28s %-17s packing loss %.2f %% (of %.1f GB)\n", model_name, policy_name, 100 * worst,
                        double(bytes) / 1e9);
            const std::string which = std::string(model_name) + ", " + policy_name;
            INFO(which);
            CHECK(worst <= 0.05);
            CHECK(worst >= 0.0);
        }
}

// Real layers once more, where nothing of the library says what is alive. The rest of the difference are the slots
// between layers.
TEST_CASE("predicted peak of blocks of real layers against the bytes that the debug executor sees alive") {
    const std::pair<const char *, Settings> policies[] = {{"none", {}},
                                                          {"selective", {{"recompute_granularity", "selective"}}},
                                                          {"three modules", selective(three_modules)},
                                                          {"full", full("uniform", 1)},
                                                          {"full, units of 2", full("uniform", 2)}};
    int number = 0;
    for (const bool is_gpt : {false, true})
        for (const auto &[name, policy] : policies) {
            if (mdlm_test::sanitized && number++ % 2 != 0) continue;  // every policy once, with one of the models
            Draw d;
            d.config = config_of((is_gpt ? gpt(32, 4) : diffusion(64, 4)) + layers(4) + policy);
            d.shape = shape_of(is_gpt ? 128 : 64, 1);
            d.micro.resize(1);
            d.micro[0].batch.seq_length = d.shape.seq_length, d.micro[0].batch.micro_batch_size = 1,
            d.micro[0].batch.training = 1;
            d.events = {{Event::Kind::forward, 0}, {Event::Kind::backward, 0}};
            memory::World world(d, memory::make_device(MDLM_DEVICE_REFERENCE, 1));
            const memory::Outcome expected = world.run();
            const memory::DebugRun run = memory::run_apart(world, memory::derive(world));
            const double loss = double(world.plan().peak_bytes) / double(run.most_alive) - 1;
            std::printf("memory: %-9s %-17s predicted peak %.2f %% above the most alive\n",
                        is_gpt ? "GPT-3" : "diffusion", name, 100 * loss);
            const std::string which = name;
            INFO(which);
            CHECK(run.outcome == expected);
            CHECK(loss >= 0.0);
            CHECK(loss <= 0.05);
        }
}

// SPDX-License-Identifier: Apache-2.0
// What mdlm bench counts is what the library says and what closed forms give. No test looks at a speed.
#include <doctest/doctest.h>

#include <cmath>

#include "../../tools/text.hpp"
#include "bench_case.hpp"

using namespace bench_test;
using namespace mdlm::tools::bench;

namespace {

// Memory of a block that is made here, by the library alone.
mdlm_memory memory_of(const Setting &s, int32_t threads) {
    mdlm_plan *plan = nullptr;
    mdlm_target target = MDLM_TARGET_INIT;
    target.num_threads = threads;
    mdlm_shape shape = MDLM_SHAPE_INIT;
    shape.seq_length = s.seq_length;
    shape.micro_batch_size = s.micro_batch_size;
    mdlm_memory memory = MDLM_MEMORY_INIT;
    REQUIRE(mdlm_plan_create(&s.config, &shape, &target, &plan) == MDLM_OK);
    CHECK(mdlm_plan_memory(plan, &memory) == MDLM_OK);
    mdlm_plan_destroy(plan);
    return memory;
}

uint64_t sum(const Step &step, mdlm_phase phase, uint64_t OpTotal::*what) {
    uint64_t all = 0;
    for (const auto &entry : step.ops)
        if (entry.first.phase == phase && entry.first.op != "copy_input") all += entry.second.*what;
    return all;
}

}  // namespace

TEST_CASE("bench: memory, ops and FLOPs of every setting of a sweep are those of the library") {
    for (const char *alive : {"all", "one"}) {
        CAPTURE(std::string(alive));
        const Options o = parse(tiny({"--sweep", "--alive", alive}));
        const Measurement m = measured(o);
        CHECK(m.all_alive == (std::string(alive) == "all"));
        REQUIRE(m.settings.size() == settings_of(o).size());
        for (const Measured &s : m.settings) {
            CAPTURE(s.setting.name);
            const mdlm_memory memory = memory_of(s.setting, o.threads);
            CHECK(s.memory.saved_bytes == memory.saved_bytes);
            CHECK(s.memory.peak_bytes == memory.peak_bytes);
            CHECK(s.memory.parameter_bytes == memory.parameter_bytes);  // the tool's own buffers
            CHECK(s.memory.gradient_bytes == memory.gradient_bytes);
            CHECK(s.stats.saved_bytes == memory.saved_bytes);
            REQUIRE(s.steps.size() == 3);
            for (const Step &step : s.steps) {
                CHECK(sum(step, MDLM_PHASE_FORWARD, &OpTotal::calls) == s.stats.forward_ops);
                CHECK(sum(step, MDLM_PHASE_FORWARD, &OpTotal::flops) == s.stats.forward_flops);
                CHECK(sum(step, MDLM_PHASE_BACKWARD, &OpTotal::calls) == s.stats.backward_ops);
                CHECK(sum(step, MDLM_PHASE_BACKWARD, &OpTotal::flops) == s.stats.backward_flops);
                CHECK(sum(step, MDLM_PHASE_REPLAY, &OpTotal::calls) == s.stats.replayed_ops);
                CHECK(sum(step, MDLM_PHASE_REPLAY, &OpTotal::flops) == s.stats.replayed_flops);
                int64_t in_ops = 0;
                for (const auto &entry : step.ops) {
                    in_ops += entry.second.ns;
                    CHECK(entry.second.least_ns * static_cast<int64_t>(entry.second.calls) <= entry.second.ns);
                }
                CHECK(in_ops <= step.total_ns());  // both by the same clock
            }
        }
    }
}

TEST_CASE("bench: FLOPs by closed forms") {
    for (const char *mask : {"no_mask", "causal"}) {
        CAPTURE(std::string(mask));
        const Options o = parse(tiny({"--recompute-granularity", "full", "--recompute-method", "block",
                                      "--recompute-num-layers", "2", "--attention-mask-type", mask}));
        const Measurement m = measured(o);
        const Report r = report_of(o, m);
        // Per token and layer: 2 FLOPs a weight forward, twice that backward; attention 4 s h forward and 8 s h
        // backward.
        const double weights = 32 * (32 + 2 * 2 * 8) + 32 * 32 + 32 * 2 * 48 + 48 * 32, tokens = 32, layers = 3;
        const double visible = std::string(mask) == "causal" ? (16 * 17 / 2) / (16.0 * 16.0) : 1;
        const double forward = 2 * weights + visible * 4 * 16 * 32, step = 6 * weights + visible * 12 * 16 * 32;
        for (const Figures &f : r.figures) {
            CHECK(f.visible == doctest::Approx(visible));
            CHECK(f.model_flops == doctest::Approx(layers * tokens * step));
            CHECK(f.model_flops_per_s * f.total_ms * 1e-3 == doctest::Approx(f.model_flops));
            CHECK(f.tokens_per_s * f.total_ms * 1e-3 == doctest::Approx(tokens));
            CHECK(f.of_peak == doctest::Approx(f.model_flops_per_s / r.peak.flops_per_s));
        }
        CHECK(r.figures[0].replayed_flops == 0);
        CHECK(r.figures[0].replayed_bytes == 0);
        CHECK(r.figures[0].overhead == 0);
        CHECK(r.figures[0].hardware_flops_per_s == r.figures[0].model_flops_per_s);
        // Two of three layers run again, but for what no backward reads: the last linear and the sum behind it.
        const double again = 2 * tokens * (forward - 2 * 48 * 32),
                     more = r.figures[1].hardware_flops_per_s - r.figures[1].model_flops_per_s;
        CHECK(more * r.figures[1].total_ms * 1e-3 == doctest::Approx(again));
        const mdlm_tape_stats &stats = m.settings[1].stats;  // norms, rotation, activation
        CHECK(r.figures[1].replayed_flops ==
              doctest::Approx(again + static_cast<double>(stats.replayed_flops - stats.replayed_matmul_flops)));
        CHECK(r.figures[1].predicted_overhead > 0);
        CHECK(r.figures[1].replayed_bytes > 0);
    }
}

TEST_CASE("bench: ranks share the work, and their collectives are counted") {
    const Options alone = parse(tiny());
    const Measurement one = measured(alone);
    const double model_flops = report_of(alone, one).figures[0].model_flops;
    for (const bool split : {false, true}) {
        CAPTURE(split);
        Words words = tiny({"--sweep", "--tensor-model-parallel-size", "2", "--against-one-rank"});
        if (split) words.push_back("--sequence-parallel");
        const Options o = parse(words);
        const Measurement m = measured(o);
        CHECK(m.ranks == 2);
        CHECK(!m.processes);
        CHECK(m.threads_each == 2);
        const Report r = report_of(o, m);
        const uint64_t layers = 3, tensor = 16 * 2 * 32 * 4;  // s b h in f32
        for (size_t i = 0; i < m.settings.size(); ++i) {
            const Measured &s = m.settings[i];
            CAPTURE(s.setting.name);
            CHECK(s.memory.saved_bytes == memory_of(s.setting, s.setting.one_rank ? 4 : 2).saved_bytes);
            CHECK(s.memory.peak_bytes == memory_of(s.setting, s.setting.one_rank ? 4 : 2).peak_bytes);
            REQUIRE(s.steps.size() == 3);
            CHECK(r.figures[i].model_flops == doctest::Approx(model_flops));
            if (s.setting.one_rank) {
                CHECK(s.stats.forward_collectives + s.stats.backward_collectives + s.stats.replayed_collectives +
                          s.stats.gradient_collectives ==
                      0);
                CHECK(r.figures[i].collectives_ms == 0);
                CHECK(std::isnan(r.figures[i].against_one_rank));
                continue;
            }
            // Two all-reduces a layer in each direction; split, a gather and a scatter in place of each.
            const uint64_t calls = layers * (split ? 4 : 2);
            CHECK(s.stats.forward_collectives == calls);
            CHECK(s.stats.forward_collective_bytes == calls * tensor);
            CHECK(s.stats.backward_collectives == calls);
            CHECK(s.stats.backward_collective_bytes == calls * tensor);
            CHECK(s.stats.gradient_collectives > 0);  // of qk-norm's weights, at least
            uint64_t seen = 0;
            for (const auto &entry : s.steps[0].ops) seen += is_collective(entry.first.op) ? entry.second.calls : 0;
            CHECK(seen == 2 * calls + s.stats.replayed_collectives + s.stats.gradient_collectives);
            CHECK(r.figures[i].collectives_ms > 0);
            CHECK(r.figures[i].collectives_ms < r.figures[i].total_ms);
            CHECK(std::isfinite(r.figures[i].against_one_rank));
        }
    }
}

TEST_CASE("bench: a budget's plan is the same on all ranks, whose devices were measured apart") {
    const std::vector<Setting> full = settings_of(
        parse(tiny({"--tensor-model-parallel-size", "2", "--recompute-granularity", "full", "--no-baseline"})));
    REQUIRE(full.size() == 1);
    const uint64_t budget = memory_of(full[0], 2).peak_bytes;
    const Measurement m = measured(parse(
        tiny({"--tensor-model-parallel-size", "2", "--memory-budget", std::to_string(budget), "--repeats", "1"})));
    REQUIRE(m.settings.size() == 2);
    CHECK(m.settings[1].memory.peak_bytes <= budget);
    CHECK(m.settings[1].stats.saved_bytes > 0);
}

TEST_CASE("bench: the peak is that of a matmul that ran") {
    const Options o = parse(tiny());
    const Measurement m = measured(o);
    const Peak peak = peak_of(m.settings);
    CHECK(peak.op.work == MDLM_WORK_MATMUL);
    CHECK(peak.op.m == 32);
    const OpTotals &ops = m.settings[0].steps[0].ops;
    REQUIRE(ops.count(peak.op) == 1);
    int64_t least = INT64_MAX;
    for (const Step &step : m.settings[0].steps) least = std::min(least, step.ops.at(peak.op).least_ns);
    CHECK(peak.flops_per_s ==
          doctest::Approx(2e9 * static_cast<double>(peak.op.m * peak.op.n * peak.op.k) / static_cast<double>(least)));
}

TEST_CASE("bench: what the library refuses is told with the setting's name") {
    struct Refused {
        Words more;
        const char *part;
    };
    for (const Refused &r : std::vector<Refused>{
             {{"--params-dtype", "f64"}, "none: MDLM_ERROR_UNSUPPORTED"},  // only the reference has it
             {{"--seq-length", "16777216", "--micro-batch-size", "1048576", "--hidden-size", "16777216"},
              "none: MDLM_ERROR_OVERFLOW"},
             {{"--tensor-model-parallel-size", "2", "--sequence-parallel", "--seq-length", "15"},
              "none: MDLM_ERROR_SHAPE"},
             {{"--tensor-model-parallel-size", "2", "--params-dtype", "f64"}, "none: MDLM_ERROR_UNSUPPORTED"},
             {{"--cpu-offloading", "--recompute-activations"}, ""}}) {
        std::string line;
        try {
            measured(parse(tiny(r.more)));
        } catch (const mdlm::tools::Bad &error) {
            line = error.what();
        }
        CAPTURE(line);
        CHECK(!line.empty());
        CHECK(line.find(r.part) != std::string::npos);
    }
}

// SPDX-License-Identifier: Apache-2.0
// Figures from times that are made up here.
#include <doctest/doctest.h>

#include <cmath>

#include "bench_case.hpp"

using namespace bench_test;
using namespace mdlm::tools::bench;

namespace {

// A setting whose repeats took these milliseconds, a third of it forward; every step has a matmul of 1 MFLOP for each
// of its calls.
Measured made(const char *name, const Options &o, std::initializer_list<double> ms, uint64_t replayed_calls = 0) {
    Measured m;
    m.setting = {name, o.config, o.seq_length, o.micro_batch_size};
    for (const double t : ms) {
        Step step;
        step.forward_ns = std::llround(1e6 * t / 3);
        step.backward_ns = std::llround(1e6 * t) - step.forward_ns;
        step.ops[{"linear", "linear_fc1", MDLM_PHASE_FORWARD, MDLM_WORK_MATMUL, 1, 1, 1}] = {4, 4000000, 400, 4000000,
                                                                                             500000};
        if (replayed_calls > 0)
            step.ops[{"linear", "linear_fc1", MDLM_PHASE_REPLAY, MDLM_WORK_MATMUL, 1, 1, 1}] = {
                replayed_calls, 1000000 * replayed_calls, 100 * replayed_calls, 7000000, 700000};
        m.steps.push_back(step);
    }
    return m;
}

}  // namespace

TEST_CASE("bench: medians") {
    CHECK(median({3, 1, 2}) == 2);
    CHECK(median({4, 1, 2, 3}) == 2.5);
    CHECK(median({5}) == 5);
    CHECK(std::isnan(median({})));
}

TEST_CASE("bench: quartiles lie between values where they fall between them") {
    const Spread five = spread({5, 1, 4, 2, 3}), four = spread({4, 1, 3, 2}), one = spread({7});
    CHECK(five.low == 2);
    CHECK(five.middle == 3);
    CHECK(five.high == 4);
    CHECK(four.low == doctest::Approx(1.75));
    CHECK(four.middle == doctest::Approx(2.5));
    CHECK(four.high == doctest::Approx(3.25));
    CHECK(one.low == 7);
    CHECK(one.high == 7);
    CHECK(std::isnan(spread({}).middle));
}

TEST_CASE("bench: what a plan adds is measured within each step, so that a machine that slows down between steps "
          "changes nothing") {
    const Options o = parse(tiny());
    // 4 ms of forward ops, 7 ms of replay; then what is moved, and what every plan copies.
    Measured m = made("other", o, {30, 30, 90, 30}, 2), none = made("none", o, {20, 20, 20, 20});
    for (Step &step : m.steps) {
        for (const char *op : {"gather_input", "shard_input", "to_host", "from_host"})
            step.ops[{op, "input", MDLM_PHASE_FORWARD, MDLM_WORK_TRANSFER, 0, 0, 0}] = {1, 0, 100, 250000, 250000};
        step.ops[{"copy_input", "input", MDLM_PHASE_FORWARD, MDLM_WORK_TRANSFER, 0, 0, 0}] = {1, 0, 100, 1000000,
                                                                                              1000000};
        step.ops[{"all_gather", "linear_qkv", MDLM_PHASE_BACKWARD, MDLM_WORK_TRANSFER, 0, 0, 0}] = {1, 0, 100, 3000000,
                                                                                                    3000000};
    }
    for (auto &entry : m.steps[2].ops) entry.second.ns *= 3;  // three times as slow, all of it
    for (const Step &step : m.steps) CHECK(extra_share(step) == doctest::Approx((7 + 4 * 0.25) / (4 + 1 + 3)));
    const Figures f = figures_of(m, &none, {});
    for (const double share : {f.extra.low, f.extra.middle, f.extra.high}) CHECK(share == doctest::Approx(1));
    CHECK(f.overhead_spread.low == doctest::Approx(0.5));
    CHECK(f.overhead_spread.high == doctest::Approx(0.5 + 0.25 * 3));  // where steps are compared it shows
    CHECK(figures_of(none, &none, {}).extra.middle == 0);
    m.cost.forward_ns = 10, m.cost.backward_ns = 30, m.cost.extra_ns = 5;
    CHECK(predicted_extra(m.cost) == doctest::Approx(0.125));
    CHECK(std::isnan(predicted_extra(none.cost)));
}

TEST_CASE("bench: ratios at a budget are of shares within a repeat") {
    const Options o = parse(tiny());
    Measurement all;
    all.settings.push_back(made("none", o, {20, 20, 20}));
    // Shares 1/4, 2/4, 3/4 against 4/4, 4/4, 1/4: ratios 1/4, 1/2, 3; the ratio of medians would be 1/2, that of means
    // 2/3.
    for (const auto &[name, replays] :
         {std::pair<const char *, std::vector<int64_t>>{"planner", {1, 2, 3}}, {"full", {4, 4, 1}}}) {
        Measured m = made(name, o, {20, 20, 20}, 1);
        m.setting.percent = 50, m.setting.budget = 1000;
        m.setting.config.memory_budget = name[0] == 'p' ? 1000 : 0;
        m.cost.forward_ns = 100, m.cost.backward_ns = 100, m.cost.extra_ns = name[0] == 'p' ? 10 : 40;
        for (size_t r = 0; r < replays.size(); ++r)
            m.steps[r].ops[{"linear", "linear_fc1", MDLM_PHASE_REPLAY, MDLM_WORK_MATMUL, 1, 1, 1}].ns =
                1000000 * replays[r];
        all.settings.push_back(std::move(m));
    }
    const std::vector<BudgetRow> rows = budget_rows(all);
    REQUIRE(rows.size() == 2);
    CHECK(rows[0].has_rival);
    CHECK(!rows[1].has_rival);
    CHECK(rows[0].predicted == doctest::Approx(0.05));
    CHECK(rows[0].predicted_ratio == doctest::Approx(0.25));
    CHECK(rows[0].ratio.low == doctest::Approx((0.25 + 0.5) / 2));
    CHECK(rows[0].ratio.middle == doctest::Approx(0.5));
    CHECK(rows[0].ratio.high == doctest::Approx((0.5 + 3) / 2));
}

TEST_CASE("bench: the visible share is that of pairs counted one by one") {
    struct Case {
        const char *mask;
        int32_t block;
        int64_t left, right;
    };
    for (const Case &c : {Case{"no_mask", 0, -1, -1},
                          {"causal", 0, -1, -1},
                          {"block_causal", 4, -1, -1},
                          {"block_causal", 5, 3, -1},
                          {"no_mask", 0, 2, 3},
                          {"no_mask", 0, -1, 0},
                          {"causal", 0, 0, -1},
                          {"causal", 0, 100, 100}}) {
        mdlm_config config = MDLM_CONFIG_INIT;
        REQUIRE(mdlm_config_set(&config, "attention_mask_type", c.mask) == MDLM_OK);
        config.mask_block_size = c.block;
        config.window_left = c.left;
        config.window_right = c.right;
        for (const int64_t s : {1, 2, 7, 16, 23}) {
            int64_t pairs = 0;
            for (int64_t i = 0; i < s; ++i)
                for (int64_t j = 0; j < s; ++j) {
                    bool seen = true;
                    if (config.attention_mask_type == MDLM_MASK_CAUSAL) seen = j <= i;
                    if (config.attention_mask_type == MDLM_MASK_BLOCK_CAUSAL) seen = j / c.block <= i / c.block;
                    if (c.left >= 0 && j < i - c.left) seen = false;
                    if (c.right >= 0 && j > i + c.right) seen = false;
                    pairs += seen;
                }
            CAPTURE(std::string(c.mask));
            CAPTURE(s);
            CHECK(visible_share(config, s) == doctest::Approx(static_cast<double>(pairs) / static_cast<double>(s * s)));
        }
    }
}

TEST_CASE("bench: overhead is the median of ratios within a repeat, not a ratio of medians") {
    const Options o = parse(tiny());
    // The machine slows down threefold in the third repeat, for both.
    const Measured none = made("none", o, {10, 12, 30, 11, 10}), other = made("other", o, {11, 15, 33, 12.1, 11}, 2);
    const Figures f = figures_of(other, &none, {});
    CHECK(f.overhead == doctest::Approx(0.1));
    CHECK(f.total_ms == doctest::Approx(12.1));
    CHECK(f.forward_ms == doctest::Approx(12.1 / 3).epsilon(1e-5));
    // Two calls again, at the 1 ms that each of the four took in the forward, over a median step of 11 ms.
    CHECK(f.predicted_overhead == doctest::Approx(2.0 / 11));
    CHECK(f.replayed_flops_share == doctest::Approx(0.5));
    CHECK(f.replayed_bytes_share == doctest::Approx(0.5));
    const Figures alone = figures_of(other, nullptr, {});
    CHECK(std::isnan(alone.overhead));
    CHECK(std::isnan(alone.predicted_overhead));
}

TEST_CASE("bench: ranks against one rank, and the time in collectives") {
    Options o = parse(tiny({"--tensor-model-parallel-size=2"}));
    Measured group = made("none", o, {11, 24, 36});
    for (Step &step : group.steps) {
        step.ops[{"all_reduce", "linear_proj", MDLM_PHASE_FORWARD, MDLM_WORK_TRANSFER, 0, 0, 0}] = {2, 0, 100, 3000000,
                                                                                                    1000000};
        step.ops[{"shard_input", "input", MDLM_PHASE_FORWARD, MDLM_WORK_TRANSFER, 0, 0, 0}] = {
            1, 0, 100, 500000, 500000};  // no rank waits there
    }
    Measured one = made("one rank: none", o, {10, 20, 40});
    one.setting.one_rank = true, one.setting.config.tensor_model_parallel_size = 1;
    const Figures f = figures_of(group, nullptr, {1e9, {}, ""}, &one);
    CHECK(f.against_one_rank == doctest::Approx(0.1));
    CHECK(f.collectives_ms == doctest::Approx(3));
    CHECK(f.collectives_share == doctest::Approx(3.0 / 24));
    // Both ranks' 4 MFLOP in 24 ms; of which each did its half at a peak of 1 GFLOP/s.
    CHECK(f.model_flops == doctest::Approx(8e6));
    CHECK(f.model_flops_per_s == doctest::Approx(8e6 / 24e-3));
    CHECK(f.of_peak == doctest::Approx(4e6 / 24e-3 / 1e9));
    // Peaks and baselines of one rank and of several are apart.
    for (auto &entry : one.steps[1].ops) entry.second.least_ns = 100000;
    const std::vector<Measured> both = {group, one};
    CHECK(peak_of(both).flops_per_s == doctest::Approx(2e9));
    CHECK(peak_of(both, true).flops_per_s == doctest::Approx(1e10));
    CHECK(baseline_of(both) == &both[0]);
    CHECK(baseline_of(both, true) == &both[1]);
}

TEST_CASE("bench: the best call of any repeat is the peak") {
    const Options o = parse(tiny());
    std::vector<Measured> both = {made("a", o, {10, 10}), made("b", o, {10, 10})};
    for (auto &entry : both[1].steps[1].ops) entry.second.least_ns = 250000;
    const Peak peak = peak_of(both);
    CHECK(peak.setting == "b");
    CHECK(peak.flops_per_s == doctest::Approx(4e9));
}

TEST_CASE("bench: a curve's steps are of time over FLOPs") {
    const Options o = parse(tiny({"--curve", "seq-length", "--points", "8,16,32"}));
    std::vector<Measured> points;
    for (const Setting &s : settings_of(o)) {
        points.push_back(made("point", o, {1, 1, 1}));
        points.back().setting = s;
    }
    // Twice the FLOPs in 2.2 times the time; then the same FLOPs in the same time.
    for (size_t i : {1, 2})
        for (Step &step : points[i].steps) {
            step.forward_ns = 1000000, step.backward_ns = 1200000;
            for (auto &entry : step.ops) entry.second.flops *= 2;
        }
    const std::vector<CurvePoint> curve = curve_of(o, points);
    REQUIRE(curve.size() == 3);
    CHECK(std::isnan(curve[0].step));
    CHECK(curve[1].step == doctest::Approx(0.1));
    CHECK(curve[2].step == doctest::Approx(0).epsilon(1e-9));
    CHECK(largest_step(curve) == doctest::Approx(0.1));
    CHECK(curve[2].at == 32);
    CHECK(curve[0].us_per_token == doctest::Approx(1000.0 / 32));
    // The median rate is that of the last two.
    CHECK(curve[1].predicted_us == doctest::Approx(curve[1].us_per_token));
    CHECK(curve[0].predicted_us == doctest::Approx(1.1 * curve[0].us_per_token));
}

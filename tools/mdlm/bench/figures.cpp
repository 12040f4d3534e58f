// SPDX-License-Identifier: Apache-2.0
#include "figures.hpp"

#include <algorithm>
#include <cmath>
#include <limits>

namespace mdlm::tools::bench {
namespace {

constexpr double unknown = std::numeric_limits<double>::quiet_NaN();

template <class F>
std::vector<double> each_repeat(const Measured &m, F f) {
    std::vector<double> values;
    for (size_t r = 0; r < m.steps.size(); ++r) values.push_back(f(r));
    return values;
}
template <class F>
double median_over(const Measured &m, F f) {
    return median(each_repeat(m, f));
}

// What the replay of a step would cost if each op took as long as in the step's forward, on average over the layers.
double predicted_replay_ns(const OpTotals &ops) {
    double ns = 0;
    for (const auto &[key, total] : ops) {
        if (key.phase != MDLM_PHASE_REPLAY) continue;
        OpKey first = key;
        first.phase = MDLM_PHASE_FORWARD;
        const auto found = ops.find(first);
        const OpTotal &same = found != ops.end() ? found->second : total;  // what was replayed ran forward before
        ns += static_cast<double>(same.ns) / static_cast<double>(same.calls) * static_cast<double>(total.calls);
    }
    return ns;
}

}  // namespace

double median(std::vector<double> values) {
    if (values.empty()) return unknown;
    std::sort(values.begin(), values.end());
    const size_t half = values.size() / 2;
    return values.size() % 2 == 1 ? values[half] : (values[half - 1] + values[half]) / 2;
}

Spread spread(std::vector<double> values) {
    if (values.empty()) return {unknown, unknown, unknown};
    std::sort(values.begin(), values.end());
    const auto at = [&](double share) {
        const double place = share * static_cast<double>(values.size() - 1);
        const auto below = static_cast<size_t>(place);
        const size_t above = std::min(below + 1, values.size() - 1);
        return values[below] + (place - static_cast<double>(below)) * (values[above] - values[below]);
    };
    return {at(0.5), at(0.25), at(0.75)};
}

double extra_share(const Step &step) {
    int64_t extra = 0, rest = 0;
    for (const auto &[key, total] : step.ops) {
        const bool moved =
            key.op == "gather_input" || key.op == "shard_input" || key.op == "to_host" || key.op == "from_host";
        (moved || key.phase == MDLM_PHASE_REPLAY ? extra : rest) += total.ns;
    }
    return static_cast<double>(extra) / static_cast<double>(rest);
}

Spread spread_of_extra(const Measured &m) {
    std::vector<double> shares;
    for (const Step &step : m.steps) shares.push_back(extra_share(step));
    return spread(std::move(shares));
}

double predicted_extra(const mdlm_plan_cost &cost) {
    const uint64_t step = cost.forward_ns + cost.backward_ns;
    return step == 0 ? unknown : static_cast<double>(cost.extra_ns) / static_cast<double>(step);
}

double visible_share(const mdlm_config &c, int64_t s) {
    double pairs = 0;
    for (int64_t i = 0; i < s; ++i) {
        int64_t first = 0, end = s;
        if (c.attention_mask_type == MDLM_MASK_CAUSAL) end = i + 1;
        if (c.attention_mask_type == MDLM_MASK_BLOCK_CAUSAL)
            end = std::min(end, (i / c.mask_block_size + 1) * c.mask_block_size);
        if (c.window_left >= 0) first = std::max(first, i - c.window_left);
        if (c.window_right >= 0) end = std::min(end, i + c.window_right + 1);
        pairs += static_cast<double>(end - first);
    }
    return pairs / (static_cast<double>(s) * static_cast<double>(s));
}

Work work_of(const OpTotals &ops, double visible, mdlm_phase phase) {
    Work w;
    for (const auto &[key, total] : ops) {
        if (key.phase != phase) continue;
        const bool attention = key.work == MDLM_WORK_ATTENTION;
        const double flops = static_cast<double>(total.flops) * (attention ? visible : 1);
        w.flops += flops;
        if (attention || key.work == MDLM_WORK_MATMUL) w.matmul_flops += flops;
        w.bytes += static_cast<double>(total.bytes);
    }
    return w;
}

Peak peak_of(const std::vector<Measured> &settings, bool one_rank) {
    Peak peak;
    for (const Measured &m : settings)
        for (const Step &step : m.steps)
            for (const auto &[key, total] : step.ops) {
                if (key.work != MDLM_WORK_MATMUL || m.setting.one_rank != one_rank) continue;
                const double flops = static_cast<double>(total.flops) / static_cast<double>(total.calls);
                const double rate = flops / (1e-9 * static_cast<double>(std::max<int64_t>(total.least_ns, 1)));
                if (rate > peak.flops_per_s) peak = {rate, key, m.setting.name};
            }
    return peak;
}

bool is_collective(const std::string &op) {
    return op == "all_reduce" || op == "all_gather" || op == "reduce_scatter" || op == "all_reduce_gradients" ||
           op == "gather_input";
}

const Measured *baseline_of(const std::vector<Measured> &settings, bool one_rank) {
    for (const Measured &m : settings)
        if (m.setting.one_rank == one_rank && m.setting.config.recompute_granularity == MDLM_RECOMPUTE_GRANULARITY_NONE)
            return &m;
    return nullptr;
}

Figures figures_of(const Measured &m, const Measured *baseline, const Peak &peak, const Measured *one_rank) {
    Figures f;
    const auto ms = [](int64_t ns) { return 1e-6 * static_cast<double>(ns); };
    f.forward_ms = median_over(m, [&](size_t r) { return ms(m.steps[r].forward_ns); });
    f.backward_ms = median_over(m, [&](size_t r) { return ms(m.steps[r].backward_ns); });
    f.total_ms = median_over(m, [&](size_t r) { return ms(m.steps[r].total_ns()); });
    f.collectives_ms = median_over(m, [&](size_t r) {
        int64_t ns = 0;
        for (const auto &[key, total] : m.steps[r].ops)
            if (is_collective(key.op)) ns += total.ns;
        return ms(ns);
    });
    f.collectives_share = f.collectives_ms / f.total_ms;
    f.extra = spread_of_extra(m);
    f.overhead_spread = f.against_spread = {unknown, unknown, unknown};
    if (one_rank != nullptr)
        f.against_spread = spread(each_repeat(m, [&](size_t r) {
            return static_cast<double>(m.steps[r].total_ns()) / static_cast<double>(one_rank->steps[r].total_ns()) - 1;
        }));
    f.against_one_rank = f.against_spread.middle;
    f.predicted_overhead = unknown;
    if (baseline != nullptr) {
        const auto base = [&](size_t r) { return static_cast<double>(baseline->steps[r].total_ns()); };
        f.overhead_spread =
            spread(each_repeat(m, [&](size_t r) { return static_cast<double>(m.steps[r].total_ns()) / base(r) - 1; }));
        f.predicted_overhead = median_over(m, [&](size_t r) { return predicted_replay_ns(m.steps[r].ops) / base(r); });
    }
    f.overhead = f.overhead_spread.middle;
    f.visible = visible_share(m.setting.config, m.setting.seq_length);
    const OpTotals &ops = m.steps.front().ops;  // their work is the same in each repeat
    const Work forward = work_of(ops, f.visible, MDLM_PHASE_FORWARD),
               backward = work_of(ops, f.visible, MDLM_PHASE_BACKWARD),
               replay = work_of(ops, f.visible, MDLM_PHASE_REPLAY);
    const double seconds = 1e-3 * f.total_ms;
    f.tokens_per_s = static_cast<double>(m.setting.seq_length * m.setting.micro_batch_size) / seconds;
    // Linears and heads are shared evenly.
    const auto ranks = static_cast<double>(m.setting.config.tensor_model_parallel_size);
    f.model_flops = ranks * (forward.matmul_flops + backward.matmul_flops);
    f.model_flops_per_s = f.model_flops / seconds;
    f.hardware_flops_per_s = (f.model_flops + ranks * replay.matmul_flops) / seconds;
    f.of_peak = f.model_flops_per_s / ranks / peak.flops_per_s;
    f.replayed_flops = replay.flops, f.replayed_bytes = replay.bytes;
    f.replayed_flops_share = replay.flops / (forward.flops + backward.flops);
    f.replayed_bytes_share = replay.bytes / (forward.bytes + backward.bytes);
    return f;
}

}  // namespace mdlm::tools::bench

// SPDX-License-Identifier: Apache-2.0
#include <cmath>
#include <nlohmann/json.hpp>

#include "../convert.hpp"
#include "report.hpp"

namespace mdlm::tools::bench {
namespace {

using Json = nlohmann::ordered_json;  // figures that are not numbers become null

Json op_json(const OpKey &op) {
    return {{"op", op.op},
            {"tensor", op.tensor},
            {"phase", name_of(op.phase)},
            {"work", name_of_work(op.work)},
            {"m", op.m},
            {"n", op.n},
            {"k", op.k}};
}

Json memory_json(const mdlm_memory &m) {
    return {{"peak_bytes", m.peak_bytes},        {"fixed_bytes", m.fixed_bytes}, {"saved_bytes", m.saved_bytes},
            {"scratch_bytes", m.scratch_bytes},  {"host_bytes", m.host_bytes},   {"parameter_bytes", m.parameter_bytes},
            {"gradient_bytes", m.gradient_bytes}};
}

Json stats_json(const mdlm_tape_stats &s) {
    return {{"saved_bytes", s.saved_bytes},
            {"host_bytes", s.host_bytes},
            {"high_water_bytes", s.high_water_bytes},
            {"forward_ops", s.forward_ops},
            {"forward_flops", s.forward_flops},
            {"backward_ops", s.backward_ops},
            {"backward_flops", s.backward_flops},
            {"replayed_ops", s.replayed_ops},
            {"replayed_flops", s.replayed_flops},
            {"replayed_matmul_flops", s.replayed_matmul_flops},
            {"forward_collectives", s.forward_collectives},
            {"forward_collective_bytes", s.forward_collective_bytes},
            {"backward_collectives", s.backward_collectives},
            {"backward_collective_bytes", s.backward_collective_bytes},
            {"replayed_collectives", s.replayed_collectives},
            {"replayed_collective_bytes", s.replayed_collective_bytes},
            {"gradient_collectives", s.gradient_collectives},
            {"gradient_collective_bytes", s.gradient_collective_bytes}};
}

Json profile_json(const Profile &profile) {
    Json rows = Json::array();
    for (const ProfileRow &row : profile.rows) {
        Json one = op_json(row.op);
        one.update({{"calls", row.calls},
                    {"ms", row.ms},
                    {"share", row.share},
                    {"flops_per_s", row.flops_per_s},
                    {"bytes_per_s", row.bytes_per_s}});
        rows.push_back(std::move(one));
    }
    return {{"ops", std::move(rows)}, {"between_ms", profile.between_ms}, {"between_share", profile.between_share}};
}

Json repeats_json(const Measured &m) {
    Json forward = Json::array(), backward = Json::array();
    for (const Step &step : m.steps) {
        forward.push_back(1e-6 * static_cast<double>(step.forward_ns));
        backward.push_back(1e-6 * static_cast<double>(step.backward_ns));
    }
    return {{"forward_ms", std::move(forward)}, {"backward_ms", std::move(backward)}};
}

Json setting_json(const Report &r, size_t i) {
    const Measured &m = r.measurement.settings[i];
    const Figures &f = r.figures[i];
    Json one = {{"name", m.setting.name},
                {"seq_length", m.setting.seq_length},
                {"micro_batch_size", m.setting.micro_batch_size},
                {"ranks", m.setting.config.tensor_model_parallel_size},
                {"memory", memory_json(m.memory)},
                {"stats", stats_json(m.stats)},
                {"forward_ms", f.forward_ms},
                {"backward_ms", f.backward_ms},
                {"total_ms", f.total_ms},
                {"overhead", f.overhead},
                {"overhead_quartiles", {f.overhead_spread.low, f.overhead_spread.high}},
                {"extra_share", f.extra.middle},
                {"extra_quartiles", {f.extra.low, f.extra.high}},
                {"table_extra_share", predicted_extra(m.cost)},
                {"predicted_overhead", f.predicted_overhead},
                {"collectives_ms", f.collectives_ms},
                {"collectives_share", f.collectives_share},
                {"tokens_per_s", f.tokens_per_s},
                {"visible_share", f.visible},
                {"model_flops", f.model_flops},
                {"model_flops_per_s", f.model_flops_per_s},
                {"of_peak", f.of_peak},
                {"hardware_flops_per_s", f.hardware_flops_per_s},
                {"replayed_flops", f.replayed_flops},
                {"replayed_flops_share", f.replayed_flops_share},
                {"replayed_bytes", f.replayed_bytes},
                {"replayed_bytes_share", f.replayed_bytes_share},
                {"repeats", repeats_json(m)}};
    if (m.setting.against >= 0) {
        one["one_rank"] = r.measurement.settings[static_cast<size_t>(m.setting.against)].setting.name;
        one["against_one_rank"] = f.against_one_rank;
        one["against_one_rank_quartiles"] = {f.against_spread.low, f.against_spread.high};
    }
    if (!r.profiles.empty()) one["profile"] = profile_json(r.profiles[i]);
    return one;
}

}  // namespace

std::string json_of(const Report &r) {
    Json all = {
        {"version", mdlm_version()},
        {"device", r.measurement.device},
        {"shape", shape_text(r)},
        {"dtype", dtype_name(r.options.config.params_dtype)},
        {"tensor_model_parallel_size", r.options.config.tensor_model_parallel_size},
        {"sequence_parallel", r.options.config.sequence_parallel != 0},
        {"ranks_are", r.measurement.ranks == 1  ? "one"
                      : r.measurement.processes ? "processes"
                                                : "threads"},
        {"threads_of_each_rank", r.measurement.threads_each},
        {"repeats", r.options.repeats},
        {"warmup", r.options.warmup},
        {"micro_batches", r.options.micro_batches},
        {"all_alive", r.measurement.all_alive},
        {"peak", {{"flops_per_s", r.peak.flops_per_s}, {"setting", r.peak.setting}, {"matmul", op_json(r.peak.op)}}}};
    if (r.options.against_one_rank)
        all["one_rank_peak"] = {{"flops_per_s", r.one_rank_peak.flops_per_s},
                                {"setting", r.one_rank_peak.setting},
                                {"matmul", op_json(r.one_rank_peak.op)}};
    Json settings = Json::array();
    for (size_t i = 0; i < r.figures.size(); ++i) settings.push_back(setting_json(r, i));
    all["settings"] = std::move(settings);
    if (!r.budgets.empty()) {
        Json rows = Json::array();
        for (const BudgetRow &b : r.budgets) {
            const Setting &s = r.measurement.settings[b.setting].setting;
            Json row = {{"percent", s.percent},    {"budget_bytes", s.budget},
                        {"setting", s.name},       {"predicted_extra", b.predicted},
                        {"extra", b.extra.middle}, {"extra_quartiles", {b.extra.low, b.extra.high}}};
            if (b.has_rival)
                row.update({{"predicted_ratio", b.predicted_ratio},
                            {"ratio", b.ratio.middle},
                            {"ratio_quartiles", {b.ratio.low, b.ratio.high}}});
            rows.push_back(std::move(row));
        }
        all["budgets"] = std::move(rows);
    }
    if (!r.curve.empty()) {
        Json points = Json::array();
        for (const CurvePoint &p : r.curve)
            points.push_back({{"at", p.at},
                              {"us_per_token", p.us_per_token},
                              {"predicted_us_per_token", p.predicted_us},
                              {"flops_per_token", p.flops_per_token},
                              {"step", p.step}});
        all["curve"] = {
            {"by", name_of(r.options.curve)}, {"points", std::move(points)}, {"largest_step", largest_step(r.curve)}};
    }
    return all.dump(1, ' ', false, Json::error_handler_t::replace) + "\n";
}

}  // namespace mdlm::tools::bench

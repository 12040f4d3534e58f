// SPDX-License-Identifier: Apache-2.0
#include <cmath>

#include "../../text.hpp"
#include "../convert.hpp"
#include "report.hpp"

namespace mdlm::tools::bench {
namespace {

// Columns that are as wide as their widest cell; the first is set left, the others right.
class Table {
public:
    void row(std::vector<std::string> cells) { rows_.push_back(std::move(cells)); }
    std::string text() const {
        std::vector<size_t> widths;
        for (const auto &row : rows_)
            for (size_t i = 0; i < row.size(); ++i) {
                if (i == widths.size()) widths.push_back(0);
                widths[i] = std::max(widths[i], row[i].size());
            }
        std::string all;
        for (const auto &row : rows_) {
            std::string line;
            for (size_t i = 0; i < row.size(); ++i) {
                const std::string fill(widths[i] - row[i].size(), ' ');
                line += (i == 0 ? "" : "  ") + (i == 0 ? row[i] + fill : fill + row[i]);
            }
            line.erase(line.find_last_not_of(' ') + 1);
            all += line + "\n";
        }
        return all;
    }

private:
    std::vector<std::vector<std::string>> rows_;
};

std::string percent(double share, bool sign = false) {
    if (!std::isfinite(share)) return "-";
    return textf(sign ? "%+.1f %%" : "%.1f %%", 100 * share);
}
// "14.7 % (14.2 .. 15.1)": the median, and the quartiles where there are repeats enough for such.
std::string percent(const Spread &s, size_t repeats, bool sign = false) {
    if (!std::isfinite(s.middle) || repeats < 4) return percent(s.middle, sign);
    return percent(s.middle, sign) + textf(sign ? " (%+.1f .. %+.1f)" : " (%.1f .. %.1f)", 100 * s.low, 100 * s.high);
}
std::string giga(double rate) { return textf("%.1f", 1e-9 * rate); }

std::string settings_table(const Report &r) {
    Table t;
    std::vector<std::string> names = {"setting",  "saved",        "peak",        "forward ms", "backward ms",
                                      "overhead", "in steps",     "predicted",   "tokens/s",   "GFLOP/s",
                                      "of peak",  "replay FLOPs", "replay bytes"};
    if (r.options.against_one_rank) names.insert(names.begin() + 5, "vs one rank");
    t.row(std::move(names));
    for (size_t i = 0; i < r.figures.size(); ++i) {
        const Figures &f = r.figures[i];
        const Measured &m = r.measurement.settings[i];
        std::vector<std::string> cells = {m.setting.name,
                                          bytes_text(static_cast<double>(m.memory.saved_bytes)),
                                          bytes_text(static_cast<double>(m.memory.peak_bytes)),
                                          textf("%.2f", f.forward_ms),
                                          textf("%.2f", f.backward_ms),
                                          percent(f.overhead_spread, m.steps.size(), true),
                                          percent(f.extra, m.steps.size()),
                                          percent(f.predicted_overhead, true),
                                          textf("%.0f", f.tokens_per_s),
                                          giga(f.model_flops_per_s),
                                          percent(f.of_peak),
                                          percent(f.replayed_flops_share),
                                          percent(f.replayed_bytes_share)};
        if (r.options.against_one_rank)
            cells.insert(cells.begin() + 5, percent(f.against_spread, m.steps.size(), true));
        t.row(std::move(cells));
    }
    return t.text();
}

// Calls and bytes of one step. Parameter gradients that are partial on each rank are summed apart.
std::string collectives_table(const Report &r) {
    const auto cell = [](uint64_t calls, uint64_t bytes) {
        return calls == 0 ? "-"
                          : textf("%llu, %s", static_cast<unsigned long long>(calls),
                                  bytes_text(static_cast<double>(bytes)).c_str());
    };
    Table t;
    t.row({"collectives", "forward", "backward", "replay", "parameter gradients", "ms", "of the step"});
    for (size_t i = 0; i < r.figures.size(); ++i) {
        const Measured &m = r.measurement.settings[i];
        if (m.setting.one_rank) continue;
        const mdlm_tape_stats &s = m.stats;
        t.row({m.setting.name, cell(s.forward_collectives, s.forward_collective_bytes),
               cell(s.backward_collectives, s.backward_collective_bytes),
               cell(s.replayed_collectives, s.replayed_collective_bytes),
               cell(s.gradient_collectives, s.gradient_collective_bytes), textf("%.2f", r.figures[i].collectives_ms),
               percent(r.figures[i].collectives_share)});
    }
    return t.text();
}

std::string curve_table(const Report &r) {
    Table t;
    t.row({name_of(r.options.curve), "step", "us/token", "from FLOPs", "MFLOP/token"});
    for (const CurvePoint &p : r.curve)
        t.row({textf("%lld", static_cast<long long>(p.at)), percent(p.step, true), textf("%.3f", p.us_per_token),
               textf("%.3f", p.predicted_us), textf("%.2f", 1e-6 * p.flops_per_token)});
    return t.text() + textf("largest step of time over FLOPs: %s\n", percent(largest_step(r.curve)).c_str());
}

std::string budgets_table(const Report &r) {
    Table t;
    t.row({"budget", "", "plan", "peak", "predicted", "in steps (quartiles)", "of full/block: predicted",
           "in steps (quartiles)"});
    for (const BudgetRow &row : r.budgets) {
        const Measured &m = r.measurement.settings[row.setting];
        std::vector<std::string> cells = {textf("%lld %%", static_cast<long long>(m.setting.percent)),
                                          bytes_text(static_cast<double>(m.setting.budget)),
                                          m.setting.name.substr(0, m.setting.name.find(',')),
                                          bytes_text(static_cast<double>(m.memory.peak_bytes)),
                                          percent(row.predicted),
                                          percent(row.extra, m.steps.size())};
        if (row.has_rival) {
            cells.push_back(textf("%.2f", row.predicted_ratio));
            cells.push_back(textf("%.2f (%.2f .. %.2f)", row.ratio.middle, row.ratio.low, row.ratio.high));
        }
        t.row(std::move(cells));
    }
    return t.text();
}

std::string profile_table(const Measured &m, const Profile &profile) {
    Table t;
    t.row({"op", "tensor", "phase", "calls", "ms", "share", "GFLOP/s", "GB/s"});
    for (const ProfileRow &row : profile.rows)
        t.row({row.op.op, row.op.tensor, name_of(row.op.phase),
               textf("%llu", static_cast<unsigned long long>(row.calls)), textf("%.3f", row.ms), percent(row.share),
               giga(row.flops_per_s), giga(row.bytes_per_s)});
    t.row({"between ops", "", "", "", textf("%.3f", profile.between_ms), percent(profile.between_share), "", ""});
    return "\n" + m.setting.name + "\n" + t.text();
}

}  // namespace

Report report_of(const Options &options, const Measurement &measurement) {
    const std::vector<Measured> &all = measurement.settings;
    Report r{options, measurement, peak_of(all), peak_of(all, true), {}, {}, {}, {}};
    for (const Measured &m : all) {
        const bool alone = m.setting.one_rank;
        const Measured *baseline = options.curve == Curve::none ? baseline_of(all, alone) : nullptr;
        const Measured *against = m.setting.against >= 0 ? &all[static_cast<size_t>(m.setting.against)] : nullptr;
        r.figures.push_back(figures_of(m, baseline, alone ? r.one_rank_peak : r.peak, against));
        if (options.profile) r.profiles.push_back(profile_of(m));
    }
    if (options.curve != Curve::none) r.curve = curve_of(options, measurement.settings);
    r.budgets = budget_rows(measurement);
    return r;
}

std::string bytes_text(double bytes) {
    const char *units[] = {"B", "KiB", "MiB", "GiB", "TiB"};
    size_t unit = 0;
    while (bytes >= 1024 && unit + 1 < std::size(units)) bytes /= 1024, ++unit;
    return textf(unit == 0 ? "%.0f %s" : "%.1f %s", bytes, units[unit]);
}

std::string op_text(const OpKey &op) {
    return textf("%s of %s, m %lld n %lld k %lld", op.op.c_str(), op.tensor.c_str(), static_cast<long long>(op.m),
                 static_cast<long long>(op.n), static_cast<long long>(op.k));
}

std::string shape_text(const Report &r) {
    const mdlm_config &c = r.options.config;
    const auto number = [](int64_t n) { return std::to_string(n); };
    const int64_t d = c.kv_channels != 0 ? c.kv_channels : c.hidden_size / c.num_attention_heads;
    std::string text = number(c.num_layers) + " layers, h " + number(c.hidden_size) + ", " +
                       number(c.num_attention_heads) + " heads of " + number(d);
    if (c.num_query_groups != 0 && c.num_query_groups != c.num_attention_heads)
        text += " in " + number(c.num_query_groups) + " groups";
    text += ", ffn " + number(c.ffn_hidden_size != 0 ? c.ffn_hidden_size : 4 * c.hidden_size);
    if (r.options.curve == Curve::none)
        text += ", s " + number(r.options.seq_length) + ", b " + number(r.options.micro_batch_size);
    else if (r.options.curve == Curve::seq_length)
        text += ", " + number(r.options.seq_length * r.options.micro_batch_size) + " tokens";
    else text += ", s " + number(r.options.seq_length);
    char mask[32];
    if (mdlm_config_get(&c, "attention_mask_type", mask, sizeof mask, nullptr) != MDLM_OK)
        bad("mdlm bench: %s", mdlm_last_error());
    return text + ", " + dtype_name(c.params_dtype) + ", " + mask;
}

std::string table_of(const Report &r) {
    std::string text = "device       " + r.measurement.device + "\n";
    text += "shape        " + shape_text(r) + "\n";
    const Measurement &m = r.measurement;
    if (m.ranks > 1)
        text +=
            textf("ranks        %d %s with %d thread%s each%s%s\n", m.ranks, m.processes ? "processes" : "threads",
                  m.threads_each, m.threads_each == 1 ? "" : "s",
                  r.options.config.sequence_parallel != 0 ? ", sequence parallel" : "",
                  r.options.against_one_rank ? textf("; one rank: %d threads", m.ranks * m.threads_each).c_str() : "");
    text += textf("repeats      %lld after %lld to warm up, settings in turn\n",
                  static_cast<long long>(r.options.repeats), static_cast<long long>(r.options.warmup));
    text += textf("matmul peak  %s GFLOP/s%s, by %s (%s)\n\n", giga(r.peak.flops_per_s).c_str(),
                  m.ranks > 1 ? " a rank" : "", op_text(r.peak.op).c_str(), r.peak.setting.c_str());
    text += settings_table(r);
    if (m.ranks > 1) text += "\n" + collectives_table(r);
    if (!r.budgets.empty()) text += "\n" + budgets_table(r);
    if (!r.curve.empty()) text += "\n" + curve_table(r);
    for (size_t i = 0; i < r.profiles.size(); ++i) text += profile_table(r.measurement.settings[i], r.profiles[i]);
    return text;
}

}  // namespace mdlm::tools::bench

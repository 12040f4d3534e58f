// SPDX-License-Identifier: Apache-2.0
#include "plot.hpp"

#include "../../text.hpp"

namespace mdlm::tools::bench {
namespace {

Chart curve_plot(const Report &r) {
    Chart chart;
    chart.title = std::string("Time per token against ") + name_of(r.options.curve);
    chart.y_label = "microseconds per token, forward and backward";
    chart.x_label = std::string(name_of(r.options.curve)) +
                    (r.options.curve == Curve::seq_length ? ", at a fixed number of tokens" : "");
    chart.log_x = true;
    Series measured{"measured", "#1f5fa8", true, false, true, {}},
        predicted{"from FLOPs, at the median rate", "#c4561a", true, true, false, {}};
    for (const CurvePoint &p : r.curve) {
        measured.points.push_back({static_cast<double>(p.at), p.us_per_token, ""});
        predicted.points.push_back({static_cast<double>(p.at), p.predicted_us, ""});
    }
    chart.series = {predicted, measured};
    return chart;
}

Chart sweep_plot(const Report &r) {
    constexpr double mebi = 1 << 20;
    Chart chart;
    chart.title = "Time against memory kept from forward to backward";
    chart.y_label = "milliseconds, forward and backward";
    chart.x_label = "saved MiB";
    Series none{"none", "#333333", false, false, true, {}}, selective{"selective", "#1f5fa8", false, false, true, {}},
        full{"full", "#c4561a", false, false, true, {}};
    for (size_t i = 0; i < r.figures.size(); ++i) {
        const Setting &s = r.measurement.settings[i].setting;
        if (s.one_rank) continue;
        const mdlm_recompute_granularity g = s.config.recompute_granularity;
        Series &series = g == MDLM_RECOMPUTE_GRANULARITY_SELECTIVE ? selective
                         : g == MDLM_RECOMPUTE_GRANULARITY_FULL    ? full
                                                                   : none;
        const size_t blank = s.name.find(' ');  // the legend has the granularity
        series.points.push_back({static_cast<double>(r.measurement.settings[i].memory.saved_bytes) / mebi,
                                 r.figures[i].total_ms,
                                 blank == std::string::npos ? s.name : s.name.substr(blank + 1)});
    }
    chart.series = {none, selective, full};
    return chart;
}

}  // namespace

Chart plot_of(const Report &r) {
    Chart chart = r.options.curve != Curve::none ? curve_plot(r) : sweep_plot(r);
    chart.subtitle = shape_text(r) + textf("; median of %lld", static_cast<long long>(r.options.repeats));
    return chart;
}

}  // namespace mdlm::tools::bench

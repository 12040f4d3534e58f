// SPDX-License-Identifier: Apache-2.0
#include "curve.hpp"

#include <algorithm>
#include <cmath>
#include <limits>

namespace mdlm::tools::bench {

std::vector<CurvePoint> curve_of(const Options &o, const std::vector<Measured> &settings) {
    std::vector<CurvePoint> points;
    std::vector<double> us_per_flop;
    double flops_before = 0;
    for (size_t i = 0; i < settings.size(); ++i) {
        const Measured &m = settings[i];
        if (m.setting.one_rank) break;  // behind all others
        const Figures f = figures_of(m, nullptr, {});
        const auto tokens = static_cast<double>(m.setting.seq_length * m.setting.micro_batch_size);
        const auto ranks = static_cast<double>(m.setting.config.tensor_model_parallel_size);
        const double replayed = ranks * work_of(m.steps.front().ops, f.visible, MDLM_PHASE_REPLAY).matmul_flops,
                     flops = f.model_flops + replayed;
        CurvePoint p;
        p.at = o.curve == Curve::seq_length ? m.setting.seq_length : m.setting.micro_batch_size;
        p.us_per_token = 1e3 * f.total_ms / tokens;
        p.flops_per_token = flops / tokens;
        p.step = std::numeric_limits<double>::quiet_NaN();
        if (i > 0) {
            std::vector<double> ratios;
            for (size_t r = 0; r < m.steps.size(); ++r)
                ratios.push_back(static_cast<double>(m.steps[r].total_ns()) / flops /
                                 (static_cast<double>(settings[i - 1].steps[r].total_ns()) / flops_before));
            p.step = median(ratios) - 1;
        }
        flops_before = flops;
        us_per_flop.push_back(p.us_per_token / p.flops_per_token);
        points.push_back(p);
    }
    const double typical = median(us_per_flop);
    for (CurvePoint &p : points) p.predicted_us = typical * p.flops_per_token;
    return points;
}

double largest_step(const std::vector<CurvePoint> &points) {
    double most = 0;
    for (const CurvePoint &p : points)
        if (std::isfinite(p.step)) most = std::max(most, std::fabs(p.step));
    return most;
}

}  // namespace mdlm::tools::bench

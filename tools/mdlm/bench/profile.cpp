// SPDX-License-Identifier: Apache-2.0
#include "profile.hpp"

#include <algorithm>

namespace mdlm::tools::bench {

const char *name_of(mdlm_phase phase) {
    return phase == MDLM_PHASE_FORWARD ? "forward" : phase == MDLM_PHASE_BACKWARD ? "backward" : "replay";
}

const char *name_of_work(mdlm_work work) {
    switch (work) {
    case MDLM_WORK_MATMUL: return "matmul";
    case MDLM_WORK_ATTENTION: return "attention";
    case MDLM_WORK_TRANSFER: return "transfer";
    default: return "other";
    }
}

Profile profile_of(const Measured &m) {
    const double visible = visible_share(m.setting.config, m.setting.seq_length);
    Profile profile;
    std::vector<double> totals, between;
    for (const Step &step : m.steps) {
        int64_t in_ops = 0;
        for (const auto &entry : step.ops) in_ops += entry.second.ns;
        totals.push_back(1e-6 * static_cast<double>(step.total_ns()));
        between.push_back(1e-6 * static_cast<double>(step.total_ns() - in_ops));
    }
    const double total = median(totals);
    profile.between_ms = median(between);
    profile.between_share = profile.between_ms / total;
    for (const auto &[key, first] : m.steps.front().ops) {
        std::vector<double> times;
        for (const Step &step : m.steps) times.push_back(1e-6 * static_cast<double>(step.ops.at(key).ns));
        ProfileRow row;
        row.op = key;
        row.ms = median(times);
        row.share = row.ms / total;
        row.calls = first.calls;
        const double seconds = std::max(1e-9, 1e-3 * row.ms), scale = key.work == MDLM_WORK_ATTENTION ? visible : 1;
        row.flops_per_s = scale * static_cast<double>(first.flops) / seconds;
        row.bytes_per_s = static_cast<double>(first.bytes) / seconds;
        profile.rows.push_back(row);
    }
    std::stable_sort(profile.rows.begin(), profile.rows.end(),
                     [](const ProfileRow &a, const ProfileRow &b) { return a.ms > b.ms; });
    return profile;
}

}  // namespace mdlm::tools::bench

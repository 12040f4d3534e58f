// SPDX-License-Identifier: Apache-2.0
#include "budgets.hpp"

#include <memory>

#include "../../text.hpp"
#include "memory.hpp"

namespace mdlm::tools::bench {
namespace {

void must(mdlm_status status) {
    if (status != MDLM_OK) bad("mdlm bench: --budgets: %s: %s", mdlm_status_name(status), mdlm_last_error());
}

struct Planned {
    mdlm_memory memory = MDLM_MEMORY_INIT;
    mdlm_plan_cost cost = MDLM_PLAN_COST_INIT;
};

// Peaks do not depend on what operations cost, so any table will do.
Planned plan_of(const Options &o, const Setting &s) {
    mdlm_target target = MDLM_TARGET_INIT;
    target.device = o.device, target.num_threads = o.threads;
    const mdlm_shape shape = shape_of(s);
    mdlm_plan *made = nullptr;
    must(mdlm_plan_create(&s.config, &shape, &target, &made));
    const std::unique_ptr<mdlm_plan, decltype(&mdlm_plan_destroy)> plan(made, mdlm_plan_destroy);
    Planned p;
    must(mdlm_plan_memory(made, &p.memory));
    must(mdlm_plan_get_cost(made, &p.cost));
    return p;
}

// Extra shares of two settings, repeat by repeat.
Spread ratio_of(const Measured &m, const Measured &other) {
    std::vector<double> ratios;
    for (size_t r = 0; r < m.steps.size(); ++r) ratios.push_back(extra_share(m.steps[r]) / extra_share(other.steps[r]));
    return spread(std::move(ratios));
}

}  // namespace

std::vector<Setting> budget_settings(const Options &o) {
    std::vector<Setting> all = {{"none", o.config, o.seq_length, o.micro_batch_size}};
    Setting planner = all[0];
    const auto most = static_cast<int64_t>(plan_of(o, planner).memory.peak_bytes);
    planner.config.memory_budget = most;
    const auto least = static_cast<int64_t>(plan_of(o, planner).cost.minimum_budget_bytes);
    for (const int64_t percent : o.budgets) {
        planner.percent = percent;
        planner.budget = planner.config.memory_budget =
            least + static_cast<int64_t>(static_cast<__int128>(most - least) * percent / 100);
        planner.name = textf("planner, %lld %%", static_cast<long long>(percent));
        all.push_back(planner);
        for (int64_t n = 1; n <= o.config.num_layers; ++n) {
            Setting block = planner;
            block.config.memory_budget = 0;
            block.config.recompute_granularity = MDLM_RECOMPUTE_GRANULARITY_FULL,
            block.config.recompute_method = MDLM_RECOMPUTE_METHOD_BLOCK;
            block.config.recompute_num_layers = n;
            block.name = textf("full block %lld, %lld %%", static_cast<long long>(n), static_cast<long long>(percent));
            if (static_cast<int64_t>(plan_of(o, block).memory.peak_bytes) > planner.budget) continue;
            all.push_back(block);
            break;
        }
    }
    return all;
}

std::vector<BudgetRow> budget_rows(const Measurement &measurement) {
    std::vector<BudgetRow> rows;
    for (size_t i = 0; i < measurement.settings.size(); ++i) {
        const Measured &m = measurement.settings[i];
        if (m.setting.percent == 0) continue;
        BudgetRow row{i, predicted_extra(m.cost), spread_of_extra(m), false, 0, {}};
        if (m.setting.config.memory_budget != 0 && i + 1 < measurement.settings.size() &&
            measurement.settings[i + 1].setting.budget == m.setting.budget) {
            const Measured &rival = measurement.settings[i + 1];
            row.has_rival = true;
            row.predicted_ratio = row.predicted / predicted_extra(rival.cost);
            row.ratio = ratio_of(m, rival);
        }
        rows.push_back(row);
    }
    return rows;
}

}  // namespace mdlm::tools::bench

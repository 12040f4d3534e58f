// SPDX-License-Identifier: Apache-2.0
#include "plan_settings.hpp"

#include <algorithm>

#include "../text.hpp"

namespace mdlm::tools {
namespace {

void ok(mdlm_status status) {
    if (status != MDLM_OK) bad("mdlm plan: %s", mdlm_last_error());
}

std::string modules_text(const mdlm_config &config) {
    char text[128];
    ok(mdlm_config_get(&config, "recompute_modules", text, sizeof text, nullptr));
    return text;
}

// Adds a setting that differs from those there: modules that the layer does not have, or whose tensors another one
// names, do not.
void add_different(std::vector<Planned> &all, Planned p) {
    const bool same = std::any_of(all.begin(), all.end(), [&](const Planned &q) {
        return q.memory.peak_bytes == p.memory.peak_bytes && q.memory.saved_bytes == p.memory.saved_bytes &&
               q.cost.extra_ns == p.cost.extra_ns;
    });
    if (!same) all.push_back(std::move(p));
}

mdlm_config selective(mdlm_config c, uint32_t modules) {
    c.recompute_granularity = MDLM_RECOMPUTE_GRANULARITY_SELECTIVE, c.recompute_modules = modules;
    return c;
}

void sort_by_peak(std::vector<Planned> &all) {
    std::stable_sort(all.begin(), all.end(),
                     [](const Planned &a, const Planned &b) { return a.memory.peak_bytes < b.memory.peak_bytes; });
}

}  // namespace

mdlm_target target_of(const PlanOptions &o) {
    mdlm_target t = o.target;
    t.device_table = o.table.c_str();
    return t;
}

PlanHandle make_plan(const PlanOptions &o, const mdlm_config &config) {
    const mdlm_target target = target_of(o);
    mdlm_plan *plan = nullptr;
    ok(mdlm_plan_create(&config, &o.shape, &target, &plan));
    return {plan, mdlm_plan_destroy};
}

Planned measure(const PlanOptions &o, const mdlm_config &config, std::string name, std::string flags,
                bool as_megatron) {
    const PlanHandle plan = make_plan(o, config);
    if (as_megatron && (config.recompute_modules & MDLM_RECOMPUTE_MODULE_CORE_ATTN) != 0)
        ok(mdlm_plan_set(plan.get(), -1, "core_attn", MDLM_STORAGE_KEEP));
    Planned p;
    p.name = std::move(name), p.flags = std::move(flags);
    ok(mdlm_plan_memory(plan.get(), &p.memory));
    ok(mdlm_plan_get_cost(plan.get(), &p.cost));
    return p;
}

bool recomputes(const mdlm_config &c) {
    return c.recompute_granularity != MDLM_RECOMPUTE_GRANULARITY_NONE || c.cpu_offloading != 0;
}

mdlm_config without_recompute(mdlm_config c) {
    c.recompute_granularity = MDLM_RECOMPUTE_GRANULARITY_NONE, c.recompute_method = MDLM_RECOMPUTE_METHOD_NONE;
    c.recompute_num_layers = 0, c.recompute_modules = 0, c.distribute_saved_activations = 0;
    c.memory_budget = 0, c.memory_budget_includes_parameters = 0;
    return c;
}

std::vector<Planned> megatron_settings(const PlanOptions &o) {
    mdlm_config plain = without_recompute(o.config);
    plain.cpu_offloading = 0, plain.cpu_offloading_num_layers = 0;
    std::vector<Planned> all = {measure(o, plain, "none", "")};
    if (o.config.cpu_offloading != 0 && o.config.cpu_offloading_num_layers < plain.num_layers) {
        const auto n = static_cast<long long>(o.config.cpu_offloading_num_layers);
        all.push_back(measure(o, without_recompute(o.config), textf("offloading %lld", n),
                              textf("--cpu-offloading-num-layers %lld", n)));
    }
    for (const uint32_t modules : {uint32_t{MDLM_RECOMPUTE_MODULE_CORE_ATTN}, uint32_t{MDLM_RECOMPUTE_MODULE_MLP},
                                   uint32_t{MDLM_RECOMPUTE_MODULE_CORE_ATTN | MDLM_RECOMPUTE_MODULE_MLP}}) {
        const mdlm_config c = selective(plain, modules);
        std::string names = modules_text(c);
        std::replace(names.begin(), names.end(), ',', ' ');
        add_different(all, measure(o, c, "selective " + names,
                                   "--recompute-granularity selective --recompute-modules " + names, true));
    }
    const bool distributes = plain.tensor_model_parallel_size > 1 && plain.sequence_parallel == 0;
    for (const mdlm_recompute_method method : {MDLM_RECOMPUTE_METHOD_UNIFORM, MDLM_RECOMPUTE_METHOD_BLOCK})
        for (int64_t n = 1; n <= plain.num_layers; ++n)
            for (int32_t distributed = 0; distributed <= int32_t{distributes}; ++distributed) {
                mdlm_config c = plain;
                c.recompute_granularity = MDLM_RECOMPUTE_GRANULARITY_FULL, c.recompute_method = method,
                c.recompute_num_layers = n;
                c.distribute_saved_activations = distributed;
                const char *word = method == MDLM_RECOMPUTE_METHOD_UNIFORM ? "uniform" : "block";
                all.push_back(measure(
                    o, c,
                    textf("full %s %lld%s", word, static_cast<long long>(n), distributed != 0 ? " distributed" : ""),
                    textf("--recompute-granularity full --recompute-method %s --recompute-num-layers %lld%s", word,
                          static_cast<long long>(n), distributed != 0 ? " --distribute-saved-activations" : "")));
            }
    sort_by_peak(all);
    return all;
}

std::vector<Planned> module_settings(const PlanOptions &o) {
    const mdlm_config plain = without_recompute(o.config);
    std::vector<Planned> all;
    for (uint32_t modules = 1; modules < 64; ++modules) {
        const mdlm_config c = selective(plain, modules);
        const std::string names = modules_text(c);
        add_different(
            all, measure(o, c, "selective " + names, "--recompute-granularity selective --recompute-modules " + names));
    }
    sort_by_peak(all);
    return all;
}

const Planned *best_that_fits(const std::vector<Planned> &settings, uint64_t budget, bool with_parameters) {
    const Planned *best = nullptr;
    for (const Planned &p : settings)
        if (p.counted(with_parameters) <= budget && (best == nullptr || p.cost.extra_ns < best->cost.extra_ns))
            best = &p;
    return best;
}

std::string bytes_text(uint64_t bytes) {
    const char *const units[] = {"B", "KiB", "MiB", "GiB", "TiB", "PiB", "EiB"};
    auto value = static_cast<double>(bytes);
    int unit = 0;
    for (; value >= 1024 && unit < 6; ++unit) value /= 1024;
    return textf(unit == 0 ? "%.0f %s" : "%.2f %s", value, units[unit]);
}

std::string time_text(uint64_t ns) {
    const auto value = static_cast<double>(ns);
    if (value < 1e6) return textf("%.1f us", value / 1e3);
    return value < 1e9 ? textf("%.2f ms", value / 1e6) : textf("%.2f s", value / 1e9);
}

}  // namespace mdlm::tools

// SPDX-License-Identifier: Apache-2.0
// mdlm plan for a block: the planner's plan at a budget, or all budgets, beside the best of Megatron's settings and of
// the library's modules.
#include <algorithm>
#include <cstdio>
#include <unistd.h>

#include "../text.hpp"
#include "bench/chart.hpp"
#include "command.hpp"
#include "plan_settings.hpp"

namespace mdlm::tools {
namespace {

struct Point {
    uint64_t peak = 0, extra_ns = 0;
};

void ok(mdlm_status status) {
    if (status != MDLM_OK) bad("mdlm plan: %s", mdlm_last_error());
}

std::vector<Point> frontier(const PlanOptions &o) {
    const mdlm_target target = target_of(o);
    const mdlm_config config = without_recompute(o.config);
    size_t count = 0;
    ok(mdlm_plan_frontier(&config, &o.shape, &target, nullptr, nullptr, 0, &count, nullptr));
    std::vector<uint64_t> peaks(count), times(count);
    ok(mdlm_plan_frontier(&config, &o.shape, &target, peaks.data(), times.data(), count, &count, nullptr));
    std::vector<Point> points;
    for (size_t i = 0; i < peaks.size(); ++i) points.push_back({peaks[i], times[i]});
    return points;
}

std::string text_of(const mdlm_plan *plan, mdlm_status (*write)(const mdlm_plan *, char *, size_t, size_t *)) {
    size_t length = 0;
    ok(write(plan, nullptr, 0, &length));
    std::string text(length + 1, '\0');
    ok(write(plan, text.data(), text.size(), &length));
    text.resize(length);
    return text;
}

std::string table_name(const PlanOptions &o) {
    size_t length = 0;
    ok(mdlm_device_table(o.table.c_str(), nullptr, 0, &length));
    std::string text(length + 1, '\0');
    ok(mdlm_device_table(o.table.c_str(), text.data(), text.size(), nullptr));
    const auto value = [&](const char *key) {
        const size_t begin = text.find(std::string("\"") + key + "\": \"") + std::string(key).size() + 5;
        return text.substr(begin, text.find('"', begin) - begin);
    };
    return value("name") + " (" + value("source") + ")";
}

std::string share(uint64_t part, uint64_t whole) {
    return whole == 0 ? ""
                      : textf(" (%.1f %% of forward and backward)",
                              100.0 * static_cast<double>(part) / static_cast<double>(whole));
}

std::string json_of(const Planned &p) {
    return textf(
        "{\"setting\": %s, \"flags\": %s, \"peak_bytes\": %llu, \"saved_bytes\": %llu, \"extra_ns\": %llu}",
        json_string(p.name).c_str(), json_string(p.flags).c_str(), static_cast<unsigned long long>(p.memory.peak_bytes),
        static_cast<unsigned long long>(p.memory.saved_bytes), static_cast<unsigned long long>(p.cost.extra_ns));
}

std::string json_of(const std::vector<Planned> &settings) {
    std::string text;
    for (const Planned &p : settings) text += (text.empty() ? "\n  " : ",\n  ") + json_of(p);
    return "[" + text + "]";
}

// What a plan is compared with.
struct Named {
    std::vector<Planned> megatron, modules;
    explicit Named(const PlanOptions &o) : megatron(megatron_settings(o)), modules(module_settings(o)) {}
};

// Time of a step against memory: the frontier as a line, settings as points; those that no other setting beats have
// their names.
void draw(const PlanOptions &o, const std::vector<Point> &points, const Named &settings, const Point *chosen) {
    const Planned &none = *std::find_if(settings.megatron.begin(), settings.megatron.end(),
                                        [](const Planned &p) { return p.name == "none"; });
    const auto step = static_cast<double>(none.cost.forward_ns + none.cost.backward_ns);
    const bool large = none.memory.peak_bytes >= uint64_t{1} << 30;
    const auto at = [&](uint64_t peak, uint64_t extra, std::string label) {
        return bench::ChartPoint{static_cast<double>(peak) / (large ? 0x1p30 : 0x1p20),
                                 (step + static_cast<double>(extra)) / 1e6, std::move(label)};
    };
    bench::Chart chart;
    chart.title = "Time against memory" + (o.model.empty() ? "" : ", " + o.model);
    chart.subtitle = textf("%lld layers, h %lld, s %lld, b %lld, t %lld, %d in flight; table %s",
                           static_cast<long long>(o.config.num_layers), static_cast<long long>(o.config.hidden_size),
                           static_cast<long long>(o.shape.seq_length), static_cast<long long>(o.shape.micro_batch_size),
                           static_cast<long long>(o.config.tensor_model_parallel_size), o.shape.in_flight,
                           table_name(o).substr(0, 40).c_str());
    chart.x_label = large ? "peak of the arena, GiB" : "peak of the arena, MiB";
    chart.y_label = "forward and backward of a micro-batch, ms";
    bench::Series exact{"planner, exact", "#1f5fa8", true, false, false, {}},
        megatron{"Megatron's settings", "#c0392b", false, false, true, {}},
        modules{"the library's modules", "#e08e0b", false, false, true, {}};
    for (size_t i = 0; i < points.size(); ++i) {
        if (i > 0)
            exact.points.push_back(
                at(points[i].peak, points[i - 1].extra_ns, ""));  // a step: until here the one before is best
        exact.points.push_back(at(points[i].peak, points[i].extra_ns, ""));
    }
    for (const auto &[from, to] : {std::pair{&settings.megatron, &megatron}, {&settings.modules, &modules}}) {
        uint64_t best = UINT64_MAX;
        for (const Planned &p : *from) {
            const bool shown = p.cost.extra_ns < best && (p.name.find("full block") == std::string::npos);
            best = std::min(best, p.cost.extra_ns);
            to->points.push_back(at(p.memory.peak_bytes, p.cost.extra_ns, shown ? p.name : ""));
        }
    }
    chart.series = {exact, megatron, modules};
    if (chosen != nullptr)
        chart.series.push_back({o.budget.has_value() ? "at the budget" : "these flags",
                                "#2e8b57",
                                false,
                                false,
                                true,
                                {at(chosen->peak, chosen->extra_ns, "plan")}});
    std::FILE *file = std::fopen(o.svg.c_str(), "wb");
    if (file == nullptr) bad("mdlm plan: --svg: %s cannot be written", o.svg.c_str());
    const std::string text = bench::svg_of(chart);
    const bool whole = std::fwrite(text.data(), 1, text.size(), file) == text.size();
    if (std::fclose(file) != 0 || !whole) bad("mdlm plan: --svg: %s cannot be written", o.svg.c_str());
}

void sweep_text(const std::vector<Point> &points, const Named &settings) {
    std::printf("%zu plans are best at some budget; about 40 of them, and of Megatron's settings and of the library's "
                "modules the best that fits:\n",
                points.size());
    std::printf("%14s %14s  %14s %14s  %-22s %14s %14s  %s\n", "peak", "extra", "Megatron peak", "extra", "setting",
                "modules' peak", "extra", "setting");
    const auto peak = [](const Planned *p) { return p == nullptr ? "-" : bytes_text(p->memory.peak_bytes); };
    const auto extra = [](const Planned *p) { return p == nullptr ? "-" : time_text(p->cost.extra_ns); };
    const auto name = [](const Planned *p) { return p == nullptr ? "none fits" : p->name.c_str(); };
    const size_t rows = std::min<size_t>(points.size(), 40);
    for (size_t row = 0; row < rows; ++row) {
        const Point &p = points[rows == 1 ? 0 : row * (points.size() - 1) / (rows - 1)];
        const Planned *m = best_that_fits(settings.megatron, p.peak, false),
                      *own = best_that_fits(settings.modules, p.peak, false);
        std::printf("%14s %14s  %14s %14s  %-22s %14s %14s  %s\n", bytes_text(p.peak).c_str(),
                    time_text(p.extra_ns).c_str(), peak(m).c_str(), extra(m).c_str(), name(m), peak(own).c_str(),
                    extra(own).c_str(), name(own));
    }
}

int sweep(const PlanOptions &o) {
    if (o.shape.in_flight > 1 && isatty(2) != 0)
        std::fputs("mdlm plan: a sweep with several tapes in flight can take a minute ...\n", stderr);
    const std::vector<Point> points = frontier(o);
    const Named settings(o);
    if (!o.svg.empty()) draw(o, points, settings, nullptr);
    if (!o.json) {
        std::printf("table  %s\n", table_name(o).c_str());
        sweep_text(points, settings);
        return exit_fine;
    }
    std::string text = "{\"frontier\": [";
    for (size_t i = 0; i < points.size(); ++i)
        text +=
            textf("%s\n  {\"peak_bytes\": %llu, \"extra_ns\": %llu}", i == 0 ? "" : ",",
                  static_cast<unsigned long long>(points[i].peak), static_cast<unsigned long long>(points[i].extra_ns));
    std::printf("%s],\n \"megatron\": %s,\n \"modules\": %s}\n", text.c_str(), json_of(settings.megatron).c_str(),
                json_of(settings.modules).c_str());
    return exit_fine;
}

// The best setting of one kind that fits, with its flags.
void print_best(const char *label, const Planned *best, uint64_t step) {
    if (best == nullptr) {
        std::printf("%-8s none of these settings fits\n", label);
        return;
    }
    std::printf("%-8s %s at best: peak %s, extra %s%s\n", label, best->name.c_str(),
                bytes_text(best->memory.peak_bytes).c_str(), time_text(best->cost.extra_ns).c_str(),
                share(best->cost.extra_ns, step).c_str());
    std::printf("         flags: %s\n", best->flags.empty() ? "none" : best->flags.c_str());
}

std::string costs_json(const Planned &p) {
    return textf(
        "\"peak_bytes\": %llu, \"saved_bytes\": %llu, \"host_bytes\": %llu, \"parameter_bytes\": %llu, "
        "\"gradient_bytes\": %llu,\n "
        "\"forward_ns\": %llu, \"backward_ns\": %llu, \"extra_ns\": %llu",
        static_cast<unsigned long long>(p.memory.peak_bytes), static_cast<unsigned long long>(p.memory.saved_bytes),
        static_cast<unsigned long long>(p.memory.host_bytes), static_cast<unsigned long long>(p.memory.parameter_bytes),
        static_cast<unsigned long long>(p.memory.gradient_bytes), static_cast<unsigned long long>(p.cost.forward_ns),
        static_cast<unsigned long long>(p.cost.backward_ns), static_cast<unsigned long long>(p.cost.extra_ns));
}

// The plan that the recompute flags make.
int plan_of_flags(const PlanOptions &o) {
    const PlanHandle plan = make_plan(o, o.config);
    Planned p;
    ok(mdlm_plan_memory(plan.get(), &p.memory));
    ok(mdlm_plan_get_cost(plan.get(), &p.cost));
    if (!o.svg.empty()) {
        const Point chosen{p.memory.peak_bytes, p.cost.extra_ns};
        draw(o, frontier(o), Named(o), &chosen);
    }
    if (o.json) {
        std::printf("{%s,\n \"plan\": %s}\n", costs_json(p).c_str(), text_of(plan.get(), mdlm_plan_to_json).c_str());
        return exit_fine;
    }
    std::printf("table    %s\n", table_name(o).c_str());
    std::printf("extra    %s%s\n\n", time_text(p.cost.extra_ns).c_str(),
                share(p.cost.extra_ns, p.cost.forward_ns + p.cost.backward_ns).c_str());
    std::fputs(text_of(plan.get(), mdlm_plan_print).c_str(), stdout);
    return exit_fine;
}

}  // namespace

int plan_block(const PlanOptions &o) {
    if (o.sweep) return sweep(o);
    if (!o.budget.has_value()) return plan_of_flags(o);
    const bool outside = o.config.memory_budget_includes_parameters != 0;
    const uint64_t budget = static_cast<uint64_t>(o.config.memory_budget);
    const PlanHandle plan = make_plan(o, o.config);
    Planned p;
    ok(mdlm_plan_memory(plan.get(), &p.memory));
    ok(mdlm_plan_get_cost(plan.get(), &p.cost));
    const Named settings(o);
    const Planned *const megatron = best_that_fits(settings.megatron, budget, outside), *const modules = best_that_fits(
                                                                                            settings.modules, budget,
                                                                                            outside);
    if (!o.svg.empty()) {
        const Point chosen{p.memory.peak_bytes, p.cost.extra_ns};
        draw(o, frontier(o), settings, &chosen);
    }
    const uint64_t step = p.cost.forward_ns + p.cost.backward_ns;
    if (o.json) {
        const auto named = [](const Planned *best) { return best != nullptr ? json_of(*best) : std::string("null"); };
        std::printf("{\"budget_bytes\": %llu, \"budget_includes_parameters\": %s, \"minimum_budget_bytes\": %llu, %s, "
                    "\"optimal\": %s, \"gap_ns\": %llu,\n "
                    "\"megatron\": %s,\n \"modules\": %s,\n \"plan\": %s}\n",
                    static_cast<unsigned long long>(budget), outside ? "true" : "false",
                    static_cast<unsigned long long>(p.cost.minimum_budget_bytes), costs_json(p).c_str(),
                    p.cost.optimal != 0 ? "true" : "false", static_cast<unsigned long long>(p.cost.gap_ns),
                    named(megatron).c_str(), named(modules).c_str(), text_of(plan.get(), mdlm_plan_to_json).c_str());
        return exit_fine;
    }
    std::printf("table    %s\n", table_name(o).c_str());
    std::printf("budget   %s, %s (the smallest that does is %s)\n", bytes_text(budget).c_str(),
                outside ? "parameters and gradients included" : "of the arena alone",
                bytes_text(p.cost.minimum_budget_bytes).c_str());
    if (outside)
        std::printf("         parameters %s, gradients %s\n", bytes_text(p.memory.parameter_bytes).c_str(),
                    bytes_text(p.memory.gradient_bytes).c_str());
    std::printf("extra    %s%s, %s\n", time_text(p.cost.extra_ns).c_str(), share(p.cost.extra_ns, step).c_str(),
                p.cost.optimal != 0 ? "the least that is possible"
                                    : textf("at most %s from the least", time_text(p.cost.gap_ns).c_str()).c_str());
    print_best("Megatron", megatron, step);
    print_best("modules", modules, step);
    std::fputs("\n", stdout);
    std::fputs(text_of(plan.get(), mdlm_plan_print).c_str(), stdout);
    return exit_fine;
}

}  // namespace mdlm::tools

// SPDX-License-Identifier: Apache-2.0
// The golden cases on groups: float64 numbers from elsewhere, within the tolerances that a group of one has, and under
// every recompute setting the bits of none.
#include <algorithm>
#include <cstdio>

#include "../../tools/mdlm/case.hpp"
#include "../../tools/mdlm/run.hpp"
#include "../golden/bf16_oracle.hpp"
#include "cases.hpp"
#include "support/hold.hpp"
#include "support/repro.hpp"
#include "whole_step.hpp"

namespace parallel {
namespace {

using mdlm::tools::relative_error;
using mdlm_test::hold;

struct Golden {
    std::string name;
    mdlm::tools::Case data;
    std::map<int, golden::OracleResult> fused, unfused;  // of a plain implementation in bf16, by ranks
};

const std::vector<Golden> &all_golden() {
    static const std::vector<Golden> all = [] {
        std::vector<Golden> list;
        for (const char *name : {"block_causal", "dlm", "gpt", "gqa", "odd", "packed", "relu2", "window"}) {
            Golden g;
            g.name = name;
            g.data = mdlm::tools::read_case(std::string(MDLM_GOLDEN_DIR) + "/" + name);
            for (const int ranks : {2, 4}) {
                g.fused[ranks] = golden::run_oracle(g.data, golden::Rounding::bf16, golden::Attention::fused, ranks);
                g.unfused[ranks] =
                    golden::run_oracle(g.data, golden::Rounding::bf16, golden::Attention::unfused, ranks);
            }
            list.push_back(std::move(g));
        }
        return list;
    }();
    return all;
}

struct Place {
    const char *name;
    mdlm_device_kind device;
    const char *dtype;
};
constexpr Place places[] = {{"cpu f32", MDLM_DEVICE_CPU, "f32"},
                            {"cpu bf16", MDLM_DEVICE_CPU, "bf16"},
                            {"reference f32", MDLM_DEVICE_REFERENCE, "f32"},
                            {"reference bf16", MDLM_DEVICE_REFERENCE, "bf16"},
                            {"reference f64", MDLM_DEVICE_REFERENCE, "f64"}};

// Does the case divide by the group?
bool fits(const mdlm::tools::Case &c, int t, bool sequence_parallel) {
    mdlm_config config = mdlm::tools::config_of(c);
    set_all(config, group_of(t, sequence_parallel));
    return mdlm_config_validate(&config) == MDLM_OK && (!sequence_parallel || c.seq_length % t == 0);
}

WholeStep step_of(const Golden &g, const Place &place, const char *backend) {
    const mdlm::tools::Case &c = g.data;
    WholeStep s;
    s.config = mdlm::tools::config_of(c);
    set_all(s.config, {{"params_dtype", place.dtype}, {"attention_backend", backend}});
    s.device = place.device;
    s.seq = c.seq_length, s.batch = c.micro_batch_size, s.documents = c.cu_seqlens;
    s.parameter = [&c](const std::string &name, int64_t, int64_t) { return c.params.at(name).values; };
    s.x = c.input.values, s.dy = c.grad_output.values;
    return s;
}

// Of f32 and f64 a bound on the error; in bf16 twice that of the plain implementation that rounds the same tensors.
struct Worst {
    double share = 0;
    std::string where;
    void take(const std::string &what, double error, double allowed) {
        hold(error <= allowed, what + ": off by " + std::to_string(error / allowed) + " times the tolerance");
        if (error / allowed > share) share = error / allowed, where = what;
    }
};
void compare(const std::string &what, const Golden &g, int ranks, const Place &place, bool fused,
             const WholeResult &seen, Worst &worst) {
    const bool coarse = std::string(place.dtype) == "bf16";
    const golden::OracleResult &oracle = (fused ? g.fused : g.unfused).at(ranks);
    const auto one = [&](const std::string &tensor, const Values &values, const Values &plain, const Values &exact) {
        const double flat = std::string(place.dtype) == "f64" ? 1e-12 : 2e-5;
        worst.take(what + ", " + tensor, relative_error(values, exact),
                   coarse ? 2 * relative_error(plain, exact) + 1e-6 : flat);
    };
    one("output", seen.y, oracle.output, g.data.output.values);
    one("grad_input", seen.dx, oracle.grad_input, g.data.grad_input.values);
    hold(seen.grads.size() == g.data.grads.size(), what + ": number of gradients");
    for (const auto &[name, values] : seen.grads)
        one(name, values, oracle.grads.at(name), g.data.grads.at(name).values);
}

std::string all_settings(const Place &place, bool sequence_parallel, mdlm_comm *comm, int rank, int size) {
    Worst worst;
    int runs = 0;
    for (const Golden &g : all_golden()) {
        if (!fits(g.data, size, sequence_parallel)) continue;
        for (const bool fused : {true, false}) {
            WholeStep step = step_of(g, place, fused ? "fused" : "unfused");
            set_all(step.config, group_of(size, sequence_parallel));
            const mdlm_config plain = step.config;
            std::vector<unsigned char> bits;
            for (const Recompute &setting : recompute_settings(plain.num_layers, !sequence_parallel)) {
                const bool first = setting.settings.empty();
                // Of unfused attention, and under a sanitizer, what differs most.
                if ((!fused || mdlm_test::sanitized) && !first && setting.name != "selective" &&
                    !setting.name.starts_with("full uniform 2"))
                    continue;
                const std::string what = g.name + (fused ? ", " : ", unfused, ") + setting.name;
                step.config = plain;
                set_all(step.config, setting.settings);
                step.loading = static_cast<Loading>(runs % 3);
                const WholeResult seen = run_step(comm, step);
                ++runs;
                if (rank == 0) compare(what, g, size, place, fused, seen, worst);
                if (first) bits = seen.bits;
                hold(seen.bits == bits, what + ": other bits than under none");
            }
        }
    }
    if (rank == 0)
        std::printf("parallel: golden, t = %d%s, %s: %d runs, at most %.2f of the tolerance (%s)\n", size,
                    sequence_parallel ? ", sequence parallel" : "", place.name, runs, worst.share, worst.where.c_str());
    return runs > 0 ? "" : "no case fits";
}

// Whole tensors of a group of 2 loaded into a group of 4, and back.
std::string from_another_sharding(mdlm_comm *comm, int, int size) {
    for (const Golden &g : all_golden()) {
        if (!fits(g.data, size, false) || !fits(g.data, 2, false)) continue;
        WholeStep step = step_of(g, places[1], "fused");
        set_all(step.config, group_of(2, false));
        std::map<std::string, Values> of_two;  // by rank 1; bf16, so not just what was given
        const std::string wrong = mdlm_test::run_group(2, [&](mdlm_comm *pair, int rank, int) {
            auto params = run_step(pair, step, true).params;
            if (rank == 1) of_two = std::move(params);
            return "";
        });
        if (!wrong.empty()) return wrong;
        set_all(step.config, group_of(size, false));
        const WholeResult direct = run_step(comm, step, true);
        step.parameter = [&](const std::string &name, int64_t, int64_t) { return of_two.at(name); };
        const WholeResult loaded = run_step(comm, step, true);
        hold(loaded.params == of_two, g.name + ": parameters gathered at t = 2 and loaded again");
        hold(loaded.bits == direct.bits, g.name + ": other bits from parameters gathered at t = 2");
    }
    return "";
}

}  // namespace

std::vector<Case> golden_cases() {
    std::vector<Case> list;
    for (const int t : {2, 4})
        for (const bool sequence_parallel : {false, true})
            for (const Place &place : places)
                list.push_back({"golden cases, t = " + std::to_string(t) +
                                    (sequence_parallel ? ", sequence parallel, " : ", ") + place.name,
                                t, [&place, sequence_parallel](mdlm_comm *comm, int rank, int size) {
                                    return all_settings(place, sequence_parallel, comm, rank, size);
                                }});
    list.push_back({"golden cases: parameters from another sharding", 4, from_another_sharding});
    return list;
}

}  // namespace parallel

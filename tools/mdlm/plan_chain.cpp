// SPDX-License-Identifier: Apache-2.0
// mdlm plan --chain: hands a file to the library and prints what comes back.
#include <mdlm/chain.h>

#include <cerrno>
#include <cstdio>
#include <cstring>
#include <memory>
#include <nlohmann/json.hpp>

#include "../text.hpp"
#include "command.hpp"
#include "plan.hpp"

namespace mdlm::tools {
namespace {

using nlohmann::json;

// "0-4 X, 5 A, 6-7 keep [6 X, 7 A]": stretches of layers with the same policy; entries are indented instead of joined
// where indent >= 0.
std::string spelled(const json &plan, int indent) {
    std::string text;
    const auto begin = [&] {
        if (indent >= 0) text += (text.empty() ? "" : "\n") + std::string(static_cast<size_t>(indent), ' ');
        else if (!text.empty()) text += ", ";
    };
    const auto range = [](int64_t first, int64_t last) {
        return first == last ? std::to_string(first) : std::to_string(first) + "-" + std::to_string(last);
    };
    for (size_t i = 0; i < plan.size(); ++i) {
        const json &entry = plan[i];
        begin();
        if (entry.contains("layer")) {
            size_t end = i;
            while (end + 1 < plan.size() && plan[end + 1].contains("layer") &&
                   plan[end + 1]["policy"] == entry["policy"])
                ++end;
            text += range(entry["layer"], plan[end]["layer"]) + "  " + one_line(entry["policy"].get<std::string>());
            i = end;
            continue;
        }
        const std::string unit =
            range(entry["unit"][0], entry["unit"][1]) + "  unit, input " + one_line(entry["input"].get<std::string>());
        text += indent >= 0 ? unit + "\n" + spelled(entry["inner"], indent + 4)
                            : unit + " [" + spelled(entry["inner"], -1) + "]";
    }
    return text;
}

std::string optimality(const json &answer) {
    return answer["optimal"].get<bool>()
               ? "optimal"
               : "at most " + std::to_string(answer["gap_ns"].get<int64_t>()) + " ns from the optimum";
}

void print_solved(const json &a) {
    const auto least = a["minimum_budget_bytes"].get<long long>();
    if (!a["feasible"].get<bool>()) {
        std::printf("no plan fits; the smallest budget that would do is %lld bytes\n", least);
        return;
    }
    std::printf("peak     %lld bytes (the smallest budget that does is %lld)\n", a["peak_bytes"].get<long long>(),
                least);
    std::printf("extra    %lld ns, %s\n", a["extra_ns"].get<long long>(), optimality(a).c_str());
    std::printf("layers\n%s\n", spelled(a["plan"], 4).c_str());
}

void print_frontier(const json &a) {
    std::printf("%18s  %18s  plan (%s)\n", "peak bytes", "extra ns", optimality(a).c_str());
    for (const json &p : a["frontier"])
        std::printf("%18lld  %18lld  %s\n", p["peak_bytes"].get<long long>(), p["extra_ns"].get<long long>(),
                    spelled(p["plan"], -1).c_str());
}

}  // namespace

int plan_chain(const PlanOptions &o) {
    const std::string chain = read_all(o.chain);
    mdlm_chain_options options = MDLM_CHAIN_OPTIONS_INIT;
    options.label_cap = o.label_cap;
    std::string text(size_t{1} << 20, '\0');
    for (size_t length = 0;;) {
        const mdlm_status status =
            o.sweep
                ? mdlm_chain_frontier(chain.data(), chain.size(), &options, text.data(), text.size(), &length)
                : mdlm_chain_solve(chain.data(), chain.size(), *o.budget, &options, text.data(), text.size(), &length);
        if (status != MDLM_OK) bad("mdlm plan: %s: %s", o.chain.c_str(), mdlm_last_error());
        const bool whole = length < text.size();
        text.resize(whole ? length : length + 1);
        if (whole) break;
    }
    if (o.json) {
        std::printf("%s\n", text.c_str());
        return exit_fine;
    }
    const json answer = json::parse(text);
    if (o.sweep) print_frontier(answer);
    else print_solved(answer);
    return exit_fine;
}

}  // namespace mdlm::tools

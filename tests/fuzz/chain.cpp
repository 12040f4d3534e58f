// SPDX-License-Identifier: Apache-2.0
// Abstract chains.
#include <mdlm/chain.h>

#include <algorithm>
#include <map>
#include <nlohmann/json.hpp>
#include <numeric>

#include "fuzz/target.hpp"
#include "planner/chain.hpp"
#include "planner/machine.hpp"

namespace fuzz {
namespace {

namespace planner = mdlm::planner;

constexpr int64_t labels = 4096;  // kept a layer: what is asked here answers soon
constexpr mdlm_chain_options options = {sizeof(mdlm_chain_options), labels, nullptr, nullptr};

// How much the planner has to look at, roughly.
double size_of(const planner::Chain &c) {
    size_t choices = 1;
    for (const planner::LayerType &t : c.types) choices = std::max(choices, t.policies.size() + t.unit_inputs.size());
    const int64_t longest =
        c.max_unit_layers == 0 ? planner::most_unit_layers : std::min(c.max_unit_layers, planner::most_unit_layers);
    const double units = c.max_unit_depth == 0
                             ? 1
                             : double(std::min(longest, c.size())) * double(std::min<int64_t>(c.max_unit_depth, 64));
    return double(c.size()) * double(choices) * units;
}

// All that the machine, which shares nothing with the planner, finds best: cost by peak.
std::map<int64_t, int64_t> every_plan(const planner::Chain &chain) {
    std::vector<int> order(static_cast<size_t>(chain.in_flight));
    std::iota(order.begin(), order.end(), 0);
    std::map<int64_t, int64_t> best;
    for (const auto &plan : planner_test::all_plans(chain)) {
        const planner_test::Seen seen = planner_test::run(chain, plan, order);
        const auto at = best.try_emplace(seen.peak, seen.ns).first;
        at->second = std::min(at->second, seen.ns);
    }
    int64_t least = INT64_MAX;
    for (auto at = best.begin(); at != best.end();) {
        if (at->second >= least) at = best.erase(at);
        else least = at->second, ++at;
    }
    return best;
}

void check_frontier(const planner::Chain &chain, const planner::Frontier &frontier) {
    if (frontier.points.empty()) found("a frontier without a plan");
    for (size_t i = 0; i < frontier.points.size(); ++i) {
        const planner::FrontierPoint &p = frontier.points[i];
        const planner::PlanCost m = planner::simulate(chain, p.plan);
        if (m.peak_bytes != p.peak_bytes || m.extra_ns != p.extra_ns)
            found("plan %zu is said to take %lld bytes and %lld ns, and takes %lld and %lld", i,
                  (long long)p.peak_bytes, (long long)p.extra_ns, (long long)m.peak_bytes, (long long)m.extra_ns);
        if (i > 0 &&
            (p.peak_bytes <= frontier.points[i - 1].peak_bytes || p.extra_ns >= frontier.points[i - 1].extra_ns))
            found("plan %zu is no better than the one before", i);
    }
    if (!frontier.optimal || chain.in_flight > 3 || planner_test::count_plans(chain, 300) > 300) return;
    std::map<int64_t, int64_t> mine;
    for (const planner::FrontierPoint &p : frontier.points) mine[p.peak_bytes] = p.extra_ns;
    if (mine != every_plan(chain)) found("the frontier of %zu plans is not the one of all that there are", mine.size());
}

void check_solve(const planner::Chain &chain, const planner::Frontier &frontier, std::string_view text) {
    const size_t last = frontier.points.size() - 1;
    for (const size_t i : {size_t{0}, last / 2, last}) {
        const planner::FrontierPoint &p = frontier.points[i];
        const planner::Result r = planner::solve(chain, p.peak_bytes, labels);
        if (!r.feasible || r.peak_bytes > p.peak_bytes)
            found("a budget of %lld bytes, in which a plan fits, gets none", (long long)p.peak_bytes);
        if (r.optimal && frontier.optimal && (r.extra_ns != p.extra_ns || r.peak_bytes != p.peak_bytes))
            found("at %lld bytes solve finds %lld ns and the frontier %lld", (long long)p.peak_bytes,
                  (long long)r.extra_ns, (long long)p.extra_ns);
        if (r.extra_ns - r.gap_ns > p.extra_ns)
            found("a plan of %lld ns is beyond the gap of %lld", (long long)p.extra_ns, (long long)r.gap_ns);
    }
    const auto less = static_cast<uint64_t>(frontier.points[0].peak_bytes - 1);
    if (frontier.points[0].peak_bytes == 0) return;
    const std::string answer = text_of("mdlm_chain_solve", [&](char *buf, size_t cap, size_t *out_len) {
        return mdlm_chain_solve(text.data(), text.size(), less, &options, buf, cap, out_len);
    });
    const auto json = nlohmann::json::parse(answer);
    if (json.at("feasible") != false || json.at("minimum_budget_bytes") > frontier.points[0].peak_bytes)
        found("a byte less than the lowest peak: %s", answer.c_str());
}

}  // namespace

void chain(std::string_view input) {
    planner::Chain chain;
    mdlm_status expected = MDLM_OK;
    try {
        chain = planner::read_chain(input);
    } catch (const mdlm::Error &e) {
        expected = e.status();
    }
    if (expected != MDLM_OK) {
        const auto status = answered(mdlm_chain_solve(input.data(), input.size(), 1000, &options, nullptr, 0, nullptr),
                                     "mdlm_chain_solve", {MDLM_ERROR_FORMAT, MDLM_ERROR_OVERFLOW});
        if (status != expected) found("mdlm_chain_solve: %s", mdlm_last_error());
        return;
    }
    const std::string written = planner::write_chain(chain);
    const planner::Chain again = planner::read_chain(written);
    if (planner::write_chain(again) != written || again.layers != chain.layers)
        found("written and read again it is another chain: %s", written.c_str());
    if (size_of(chain) > 600) return;
    const planner::Frontier frontier = planner::frontier(chain, labels);
    check_frontier(chain, frontier);
    check_solve(chain, frontier, input);
    const std::string answer = text_of("mdlm_chain_frontier", [&](char *buf, size_t cap, size_t *out_len) {
        return mdlm_chain_frontier(input.data(), input.size(), &options, buf, cap, out_len);
    });
    if (nlohmann::json::parse(answer).at("frontier").size() != frontier.points.size())
        found("the answer has other plans: %s", answer.c_str());
}

}  // namespace fuzz

// SPDX-License-Identifier: Apache-2.0
// Chains, plans and answers as JSON.
#include <nlohmann/json.hpp>

#include "planner/chain.hpp"

namespace mdlm::planner {
namespace {

// With its quotes; bytes that are not UTF-8 become U+FFFD.
std::string quoted(const std::string &text) {
    return nlohmann::json(text).dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
}

std::string member(const char *name, int64_t value) {
    return std::string("\"") + name + "\": " + std::to_string(value);
}
std::string member(const char *name, bool value) {
    return std::string("\"") + name + (value ? "\": true" : "\": false");
}

std::string of(const PolicyCost &p) {
    return "{\"name\": " + quoted(p.name) + ", " + member("saved_bytes", p.saved_bytes) + ", " +
           member("extra_ns", p.extra_ns) + ", " + member("forward_bytes", p.forward_bytes) + ", " +
           member("backward_bytes", p.backward_bytes) + ", " + member("rebuild_ns", p.rebuild_ns) + "}";
}
std::string of(const UnitInput &u) {
    return "{\"name\": " + quoted(u.name) + ", " + member("saved_bytes", u.saved_bytes) + ", " +
           member("restore_ns", u.restore_ns) + ", " + member("stays", u.stays) + "}";
}
template <class T>
std::string list(const std::vector<T> &all) {
    std::string text = "[";
    for (const T &one : all) text += (text.size() == 1 ? "" : ", ") + of(one);
    return text + "]";
}

}  // namespace

std::string write_chain(const Chain &chain) {
    std::string text = "{\"format\": \"mdlm-chain\", \"version\": 1, " + member("in_flight", chain.in_flight) + ", " +
                       member("fixed_bytes", chain.fixed_bytes) + ", " + member("loss_bytes", chain.loss_bytes) + ", " +
                       member("input_bytes", chain.input_bytes) + ", " +
                       member("max_unit_depth", chain.max_unit_depth) + ", " +
                       member("max_unit_layers", chain.max_unit_layers) + ", \"layers\": [";
    for (size_t i = 0; i < chain.layers.size();) {
        size_t end = i;
        while (end < chain.layers.size() && chain.layers[end] == chain.layers[i]) ++end;
        const LayerType &t = chain.types[static_cast<size_t>(chain.layers[i])];
        text += std::string(i == 0 ? "" : ", ") + "{\"name\": " + quoted(t.name) + ", " +
                member("count", static_cast<int64_t>(end - i)) + ", " + member("boundary_bytes", t.boundary_bytes) +
                ", " + member("grad_boundary_bytes", t.grad_boundary_bytes) + ", " +
                member("forward_ns", t.forward_ns) + ", " + member("unsaved_forward_bytes", t.unsaved_forward_bytes) +
                ", \"policies\": " + list(t.policies) + ", \"unit_inputs\": " + list(t.unit_inputs) + "}";
        i = end;
    }
    return text + "]}";
}

std::string to_json(const Chain &chain, const ChainPlan &plan) {
    std::string text = "[";
    std::vector<size_t> ends;  // of the units that are open, in the list
    for (size_t i = 0; i < plan.size(); ++i) {
        const PlanItem &item = plan[i];
        if (text.back() != '[') text += ", ";
        const LayerType &t = chain.type(item.first);
        if (item.count == 1) {
            text += "{\"layer\": " + std::to_string(item.first) +
                    ", \"policy\": " + quoted(t.policies[static_cast<size_t>(item.choice)].name) + "}";
        } else {
            text += "{\"unit\": [" + std::to_string(item.first) + ", " + std::to_string(item.first + item.count - 1) +
                    "], \"input\": " + quoted(t.unit_inputs[static_cast<size_t>(item.choice)].name) + ", \"inner\": [";
            ends.push_back(i + 1 + static_cast<size_t>(item.inside));
        }
        for (; !ends.empty() && ends.back() == i + 1; ends.pop_back()) text += "]}";
    }
    return text + "]";
}

std::string to_json(const Chain &chain, const Result &r) {
    std::string text = "{" + member("feasible", r.feasible);
    if (r.feasible)
        text += ", " + member("optimal", r.optimal) + ", " + member("gap_ns", r.gap_ns) + ", " +
                member("peak_bytes", r.peak_bytes) + ", " + member("extra_ns", r.extra_ns);
    text += ", " + member("minimum_budget_bytes", r.minimum_budget_bytes);
    if (r.feasible) text += ", \"plan\": " + to_json(chain, r.plan);
    return text + "}";
}

std::string to_json(const Chain &chain, const Frontier &f, Cancellation *cancellation) {
    std::string text = "{\"frontier\": [";
    for (size_t i = 0; i < f.points.size(); ++i) {
        poll(cancellation, "when it wrote its plans");
        const FrontierPoint &p = f.points[i];
        text += std::string(i == 0 ? "" : ",\n") + "{" + member("peak_bytes", p.peak_bytes) + ", " +
                member("extra_ns", p.extra_ns) + ", \"plan\": " + to_json(chain, p.plan) + "}";
    }
    return text + "], " + member("optimal", f.optimal) + ", " + member("gap_ns", f.gap_ns) + "}";
}

}  // namespace mdlm::planner

// SPDX-License-Identifier: Apache-2.0
#include "planner/chain.hpp"

#include <algorithm>

#include "base/sizes.hpp"

namespace mdlm::planner {
namespace {

using ll = long long;

void range(const char *name, int64_t value, int64_t low, int64_t high) {
    if (value < low || value > high)
        fail(MDLM_ERROR_ARGUMENT, "chain: %s = %lld: expected %lld .. %lld", name, ll{value}, ll{low}, ll{high});
}

void not_negative(size_t type, const char *list, size_t index, const char *name, int64_t value) {
    if (value >= 0) return;
    if (list == nullptr)
        fail(MDLM_ERROR_ARGUMENT, "chain: layers[%zu].%s = %lld: expected an integer >= 0", type, name, ll{value});
    fail(MDLM_ERROR_ARGUMENT, "chain: layers[%zu].%s[%zu].%s = %lld: expected an integer >= 0", type, list, index, name,
         ll{value});
}

void check(const LayerType &t, size_t i) {
    not_negative(i, nullptr, 0, "boundary_bytes", t.boundary_bytes);
    not_negative(i, nullptr, 0, "grad_boundary_bytes", t.grad_boundary_bytes);
    not_negative(i, nullptr, 0, "forward_ns", t.forward_ns);
    not_negative(i, nullptr, 0, "unsaved_forward_bytes", t.unsaved_forward_bytes);
    const auto most = static_cast<size_t>(most_choices);
    if (t.policies.empty() || t.policies.size() > most)
        fail(MDLM_ERROR_ARGUMENT, "chain: layers[%zu].policies: %zu of them: expected 1 .. %zu", i, t.policies.size(),
             most);
    if (std::none_of(t.policies.begin(), t.policies.end(),
                     [](const PolicyCost &p) { return (p.roles & role_alone) != 0; }))
        fail(MDLM_ERROR_ARGUMENT, "chain: layers[%zu].policies: expected one that may stand alone", i);
    if (t.unit_inputs.size() > most)
        fail(MDLM_ERROR_ARGUMENT, "chain: layers[%zu].unit_inputs: %zu of them: expected 0 .. %zu", i,
             t.unit_inputs.size(), most);
    for (size_t j = 0; j < t.policies.size(); ++j) {
        const PolicyCost &p = t.policies[j];
        not_negative(i, "policies", j, "saved_bytes", p.saved_bytes);
        not_negative(i, "policies", j, "extra_ns", p.extra_ns);
        not_negative(i, "policies", j, "forward_bytes", p.forward_bytes);
        not_negative(i, "policies", j, "backward_bytes", p.backward_bytes);
        not_negative(i, "policies", j, "rebuild_ns", p.rebuild_ns);
    }
    for (size_t j = 0; j < t.unit_inputs.size(); ++j) {
        not_negative(i, "unit_inputs", j, "saved_bytes", t.unit_inputs[j].saved_bytes);
        not_negative(i, "unit_inputs", j, "restore_ns", t.unit_inputs[j].restore_ns);
    }
}

// The most that one layer of a type can add to what is retained, to what is alive, and to the extra time.
struct Most {
    int64_t retained = 0, alive = 0, ns = 0;
};
Most most_of(const LayerType &t, int64_t depth) {
    Most m;
    int64_t extra = 0, rebuild = 0, restore = 0, form = 0;
    for (const PolicyCost &p : t.policies) {
        m.retained = std::max(m.retained, p.saved_bytes);
        m.alive = std::max({m.alive, p.forward_bytes, p.backward_bytes});
        extra = std::max(extra, p.extra_ns), rebuild = std::max(rebuild, p.rebuild_ns);
    }
    for (const UnitInput &u : t.unit_inputs)
        form = std::max(form, u.saved_bytes), restore = std::max(restore, u.restore_ns);
    m.retained = std::max(m.retained, form);
    m.alive = add(std::max({m.alive, t.unsaved_forward_bytes, t.boundary_bytes}), add(form, t.grad_boundary_bytes));
    m.ns = add(add(extra, rebuild), mul(add(depth, 1), add(t.forward_ns, restore)));
    return m;
}

}  // namespace

void check(const Chain &chain) {
    range("number of layers", chain.size(), 1, most_layers);
    range("in_flight", chain.in_flight, 1, most_in_flight);
    range("input_bytes", chain.input_bytes, 0, INT64_MAX);
    range("fixed_bytes", chain.fixed_bytes, 0, INT64_MAX);
    range("loss_bytes", chain.loss_bytes, 0, INT64_MAX);
    range("max_unit_depth", chain.max_unit_depth, 0, INT64_MAX);
    range("max_unit_layers", chain.max_unit_layers, 0, INT64_MAX);
    if (chain.max_unit_depth > 0 && std::min(chain.max_unit_layers, chain.size()) > most_unit_layers)
        range("max_unit_layers", chain.max_unit_layers, 0, most_unit_layers);
    for (size_t i = 0; i < chain.types.size(); ++i) check(chain.types[i], i);
    int64_t retained = 0, alive = chain.input_bytes, gradient = 0, ns = 0;
    const int64_t depth = std::min(chain.max_unit_depth, most_unit_layers);
    std::vector<Most> most;
    for (const LayerType &t : chain.types) {
        most.push_back(most_of(t, depth));
        gradient = std::max(gradient, t.grad_boundary_bytes);
    }
    for (int32_t type : chain.layers) {
        range("type of a layer", type, 0, static_cast<int64_t>(chain.types.size()) - 1);
        const Most &m = most[static_cast<size_t>(type)];
        retained = add(retained, m.retained), alive = std::max(alive, m.alive), ns = add(ns, m.ns);
    }
    // Retained twice: below and inside of a unit.
    const int64_t bytes =
        add(add(chain.fixed_bytes, chain.loss_bytes),
            add(mul(add(chain.in_flight, 1), retained), add(mul(alive, 2), add(gradient, chain.input_bytes))));
    constexpr int64_t limit = int64_t{1} << 61;
    if (bytes > limit)
        fail(MDLM_ERROR_OVERFLOW, "chain: its plans may need %lld bytes: expected at most 2^61", ll{bytes});
    if (ns > limit) fail(MDLM_ERROR_OVERFLOW, "chain: its plans may cost %lld ns: expected at most 2^61", ll{ns});
}

}  // namespace mdlm::planner

// SPDX-License-Identifier: Apache-2.0
#include "plan/policy.hpp"

#include <algorithm>
#include <map>

#include "base/status.hpp"
#include "layer/derivative.hpp"

namespace mdlm {
namespace {

// Everything stays that backward reads when all is trained. What is between (outputs of row-parallel linears before
// their bias, scores) and what a collective brings back is made again where something needs it.
LayerPolicy keep_all(const std::shared_ptr<const Program> &p) {
    const auto d = differentiate(p, std::vector<char>(p->params.size(), 1), true);
    LayerPolicy policy = replay_all(*p, Storage::keep);
    for (size_t i = 0; i < p->buffers.size(); ++i)
        if (d->read[i] && !p->buffers[i].rebuilt && !p->is_side(static_cast<BufferId>(i)))
            policy[p->buffers[i].main] = Storage::keep;
    return policy;
}

// What the settings say of a layer where it stands.
struct Standing {
    bool replays, offload;  // its unit
    bool first, alone;      // in its unit
};
void apply(const Config &c, const Program &p, const Standing &s, LayerPolicy &policy) {
    const bool full = c.recompute_granularity == MDLM_RECOMPUTE_GRANULARITY_FULL;
    if (s.replays && s.alone) policy = replay_all(p, Storage::keep);
    if (!s.first) policy[p.input] = Storage::replay;
    if (c.recompute_granularity == MDLM_RECOMPUTE_GRANULARITY_SELECTIVE)
        for (size_t b = 0; b < p.buffers.size(); ++b)
            if ((c.recompute_modules & p.buffers[b].modules) != 0 && !p.buffers[b].always_kept)
                policy[b] = Storage::replay;
    if (!s.first) return;
    if (s.replays && c.distribute_saved_activations) policy[p.input] = Storage::shard;
    if (s.offload && full) policy[p.input] = Storage::host;
    if (s.offload && !full)
        for (size_t b = 0; b < p.buffers.size(); ++b)
            if (policy[b] == Storage::keep && !p.buffers[b].always_kept) policy[b] = Storage::host;
}

}  // namespace

const char *name_of(Storage s) {
    switch (s) {
    case Storage::keep: return "keep";
    case Storage::replay: return "replay";
    case Storage::shard: return "shard";
    case Storage::host: return "host";
    }
    return "?";
}

const Unit &Policies::unit_of(int64_t item) const {
    return *std::find_if(units.begin(), units.end(), [&](const Unit &u) { return item < u.first + u.count; });
}

LayerPolicy replay_all(const Program &p, Storage input) {
    LayerPolicy policy(p.buffers.size(), Storage::replay);
    for (size_t i = 0; i < policy.size(); ++i)
        if (p.buffers[i].always_kept) policy[i] = Storage::keep;
    policy[p.input] = input;
    return policy;
}

std::vector<BufferId> tensors_of(const Program &p) {
    std::vector<BufferId> ids;
    for (size_t i = 0; i < p.buffers.size(); ++i)
        if (p.buffers[i].main == static_cast<BufferId>(i) && static_cast<BufferId>(i) != p.output &&
            !p.is_side(static_cast<BufferId>(i)))
            ids.push_back(static_cast<BufferId>(i));
    return ids;
}

Policies policies_of(const Config &c, const Chain &chain) {
    Policies out;
    const bool full = c.recompute_granularity == MDLM_RECOMPUTE_GRANULARITY_FULL;
    const bool uniform = c.recompute_method == MDLM_RECOMPUTE_METHOD_UNIFORM;
    const int64_t n = c.recompute_num_layers;
    std::map<const Program *, LayerPolicy> whole;
    int64_t seen = 0;  // items before this one that the settings are about
    for (int64_t first = 0; first < chain.items();) {
        const bool set = chain[first].by_settings, replays = set && full && (uniform || seen < n),
                   offload = set && seen < c.cpu_offloading_num_layers;
        int64_t count = 1;
        while (replays && uniform && count < n && chain.unit_fits(first, count + 1)) ++count;
        out.units.push_back({first, count});
        for (int64_t i = first; i < first + count; ++i) {
            const Program &p = chain.of(i);
            LayerPolicy &policy = whole[&p];
            if (policy.empty()) policy = keep_all(chain[i].program);
            out.items.push_back(policy);
            if (set) apply(c, p, {replays, offload, i == first, count == 1}, out.items.back());
        }
        first += count, seen += set ? count : 0;
    }
    return out;
}

void set_storage(Policies &policies, const Chain &chain, int64_t t, int64_t item, BufferId buffer, Storage storage) {
    const Program &p = chain.of(item);
    const Unit &unit = policies.unit_of(item);
    const char *name = p.buffers[buffer].name.c_str();
    const auto refuse = [&](const char *expected) {
        fail(MDLM_ERROR_CONFIG, "tensor %s of layer %lld: expected %s, got %s", name, (long long)item, expected,
             name_of(storage));
    };
    if (buffer == p.input) {
        const bool inside = item != unit.first;
        if (inside && storage != Storage::replay) refuse("replay (it is inside a unit of several layers)");
        if (!inside && storage == Storage::replay) refuse("keep, shard or host (it is the input of a unit)");
        if (storage == Storage::shard && t == 1) refuse("keep or host (shard needs tensor_model_parallel_size > 1)");
        if (storage == Storage::shard && p.buffers[buffer].split > 1)
            refuse("keep or host (sequence_parallel has split it already)");
    } else {
        if (p.buffers[buffer].always_kept && storage != Storage::keep) refuse("keep (its maker must not run twice)");
        if (storage == Storage::shard) refuse("keep, replay or host (only the input of a unit can be sharded)");
        if (storage == Storage::host && unit.count > 1)
            refuse("keep or replay (it is inside a unit of several layers)");
    }
    policies.items[item][buffer] = storage;
}

void set_unit(Policies &policies, const Chain &chain, int64_t first, int64_t count) {
    if (!chain.unit_fits(first, count))
        fail(MDLM_ERROR_ARGUMENT, "unit of %lld layers from %lld: expected to lie within the block's %lld layers",
             (long long)count, (long long)first, (long long)chain.in_units());
    std::vector<Unit> units;
    const auto single = [&](int64_t i) { units.push_back({i, 1}); };
    for (const Unit &u : policies.units) {
        const int64_t end = u.first + u.count;
        if (end <= first || u.first >= first + count) {
            units.push_back(u);
            continue;
        }
        for (int64_t i = u.first; i < std::min(end, first); ++i) single(i);
        if (u.first <= first && first < end) units.push_back({first, count});
        for (int64_t i = std::max(u.first, first + count); i < end; ++i) single(i);
    }
    policies.units = std::move(units);
    for (const Unit &u : policies.units)
        for (int64_t i = u.first; i < u.first + u.count; ++i) {
            const Program &p = chain.of(i);
            Storage &input = policies.items[i][p.input];
            if (i > u.first) input = Storage::replay;
            else if (input == Storage::replay) input = Storage::keep;
            if (u.count > 1)
                for (BufferId b : tensors_of(p))
                    if (b != p.input && policies.items[i][b] == Storage::host) policies.items[i][b] = Storage::keep;
        }
}

void check(const Policies &policies, const Chain &chain, int64_t t) {
    Policies copy = policies;
    for (int64_t i = 0; i < chain.items(); ++i)
        for (BufferId b : tensors_of(chain.of(i))) set_storage(copy, chain, t, i, b, policies.items[i][b]);
}

}  // namespace mdlm

// SPDX-License-Identifier: Apache-2.0
#include "plan/layout.hpp"

#include <algorithm>

#include "base/sizes.hpp"
#include "plan/pack.hpp"

namespace mdlm {
namespace {

struct Life {
    int32_t birth = -1, death = -1;
    void use(int32_t step) {
        if (birth < 0) birth = step;
        death = step;
    }
};

// Lifetimes by root value within one phase.
std::vector<Life> lives(const Schedule &s, const std::vector<ScheduledOp> &ops) {
    std::vector<Life> life(s.values.size());
    for (size_t i = 0; i < ops.size(); ++i) {
        const auto at = static_cast<int32_t>(i);
        for (int32_t v : ops[i].in) life[s.root(v)].use(at);
        for (int32_t v : ops[i].out) life[s.root(v)].use(at);
        if (ops[i].workspace >= 0) life[ops[i].workspace].use(at);
    }
    return life;
}

// Packs what one phase uses. Saved tensors live from the start in backward and to the end in forward.
void pack_phase(const Schedule &s, const LayoutKey &key, const std::vector<ScheduledOp> &ops, bool is_backward,
                Layout &layout) {
    std::vector<Life> life = lives(s, ops);
    const auto end = static_cast<int32_t>(ops.size());
    std::vector<PackItem> items;
    std::vector<int32_t> owner;
    const auto item = [&](int32_t v, int32_t birth, int32_t death, int64_t offset) {
        items.push_back({s.values[v].bytes, birth, death, offset});
        owner.push_back(v);
    };
    for (size_t i = 0; i < s.values.size(); ++i) {
        const auto v = static_cast<int32_t>(i);
        if (s.root(v) != v) continue;
        const Value &value = s.values[v];
        const Life &l = life[v];
        switch (value.home) {
        case Home::frame:
            if (is_backward) item(v, 0, std::max(l.death, 0), layout.places[v].offset);
            else item(v, l.birth, end, layout.places[v].offset);
            break;
        case Home::x:
            if (key.x_in_frame) item(v, 0, is_backward ? std::max(l.death, 0) : end, 0);
            break;
        case Home::y:
            if (!is_backward && key.y_in_slab) item(v, l.birth, end, layout.frame_bytes);
            break;
        case Home::scratch:
            if (l.birth >= 0) item(v, l.birth, l.death, -1);
            break;
        case Home::staged:
        case Home::kept:
        case Home::side:
        case Home::dy:
        case Home::dx: break;
        }
    }
    if (key.shard_bytes > 0) items.push_back({key.shard_bytes, 0, end, 0}), owner.push_back(-1);
    (is_backward ? layout.backward_alive : layout.forward_alive) = most_alive(items);
    const int64_t height = std::max(pack(items, key.slab_above ? 0 : layout.frame_bytes), layout.frame_bytes);
    (is_backward ? layout.backward_slab : layout.forward_slab) = height - layout.frame_bytes;
    for (size_t i = 0; i < items.size(); ++i) {
        if (owner[i] < 0) continue;
        const bool slab = items[i].offset >= layout.frame_bytes;
        layout.places[owner[i]] = {slab ? ValuePlace::Where::slab : ValuePlace::Where::frame,
                                   slab ? items[i].offset - layout.frame_bytes : items[i].offset};
    }
}

// No offset that a packer can come to overflows after it.
void check_total(const Schedule &s, const LayoutKey &key) {
    int64_t total = key.shard_bytes;
    for (const Value &v : s.values) total = add(total, v.bytes);
    constexpr int64_t limit = int64_t{1} << 61;
    if (total > limit)
        fail(MDLM_ERROR_OVERFLOW, "the tensors of one layer take %lld bytes: expected at most 2^61",
             static_cast<long long>(total));
}

}  // namespace

Layout make_layout(const Schedule &s, const LayoutKey &key) {
    check_total(s, key);
    Layout l;
    l.places.resize(s.values.size());
    const int64_t x_bytes = s.values[s.x].bytes;
    l.frame_bytes = key.shard_bytes + (key.x_in_frame ? x_bytes : 0);
    l.staged_bytes = key.x_staged ? x_bytes : 0;
    int64_t kept = 0;
    for (int32_t v : s.saved) {
        if (s.values[v].home == Home::kept) {
            l.places[v] = {ValuePlace::Where::kept, kept};
            kept += s.values[v].bytes;
            continue;
        }
        const bool staged = s.values[v].home == Home::staged;
        int64_t &top = staged ? l.staged_bytes : l.frame_bytes;
        l.places[v] = {staged ? ValuePlace::Where::staged : ValuePlace::Where::frame, top};
        top += s.values[v].bytes;
    }
    pack_phase(s, key, s.forward, false, l);
    if (!s.backward.empty()) pack_phase(s, key, s.backward, true, l);
    if (key.x_staged) l.places[s.x] = {ValuePlace::Where::staged, 0};
    for (size_t v = 0; v < s.values.size(); ++v)
        if (s.root(static_cast<int32_t>(v)) != static_cast<int32_t>(v))
            l.places[v] = l.places[s.root(static_cast<int32_t>(v))];
    return l;
}

}  // namespace mdlm

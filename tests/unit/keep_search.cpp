// SPDX-License-Identifier: Apache-2.0
// The search over what a layer may keep, on programs that no config makes: against every set where those are few, and
// within bounds where they are a million and more.
#include <doctest/doctest.h>

#include <algorithm>
#include <cstdio>
#include <set>

#include "plan/budget.hpp"
#include "support/counting_layers.hpp"
#include "support/split_mix.hpp"

using namespace mdlm;
using mdlm_test::Random;

namespace {

// A nanosecond for each that a CountingOp says.
DeviceTable counting_table() {
    DeviceTable t;
    t.pointwise = 1000000000, t.memory = 1000000000000;
    return t;
}

LayoutKey key_of(int64_t bits) {
    LayoutKey key;
    key.x_in_frame = (bits & 1) != 0, key.y_in_slab = (bits & 2) != 0, key.slab_above = (bits & 4) != 0;
    return key;
}

std::vector<BufferId> choices_of(const Program &p) {
    std::vector<BufferId> list = tensors_of(p);
    std::erase(list, p.input);
    return list;
}

// Ops in a row that read one to three of what is there already, some with a second output or statistics, some in place,
// some with scratch; what backward reads is drawn.
std::shared_ptr<const Differentiated> drawn_layer(uint64_t seed) {
    Random r(seed);
    keep_test::Layer l(r.in(1, 9));
    std::vector<BufferId> there = {l.input()};
    int64_t choices = r.in(3, 10);
    BufferId last = l.input();
    while (choices > 0) {
        std::vector<BufferId> in = {r.percent(70) ? last : there[static_cast<size_t>(r.in(0, there.size() - 1))]};
        for (int64_t more = r.percent(40) ? r.in(1, 2) : 0; more > 0; --more) {
            const BufferId b = there[static_cast<size_t>(r.in(0, there.size() - 1))];
            if (std::count(in.begin(), in.end(), b) == 0) in.push_back(b);
        }
        const bool over = r.percent(40);
        const int64_t granules =
            over && r.percent(80) ? l.program().buffers[in[0]].fixed / 64 : r.in(1, r.percent(30) ? 40 : 9);
        std::vector<BufferId> out = {l.buffer("t", granules)};
        last = out[0], --choices;
        there.push_back(last);
        if (r.percent(25)) {
            out.push_back(l.buffer("second", r.in(1, 6))), --choices;
            if (r.percent(30)) l.always_keep(out.back());
            if (r.percent(70)) there.push_back(out.back());  // else nobody reads it, unless backward does
        }
        // Its own, or those of something made before it.
        if (r.percent(25))
            out.push_back(l.buffer("statistics", 1,
                                   r.percent(70) ? last : there[static_cast<size_t>(r.in(0, there.size() - 1))]));
        std::vector<BufferId> reads;
        for (const auto *list : {&in, &out})
            for (BufferId b : *list)
                if (r.percent(45)) reads.push_back(b);
        l.op(std::move(in), std::move(out), r.in(1, 60), std::move(reads), r.percent(30) ? 256 * r.in(1, 12) : 0, over,
             r.percent(40));
    }
    const BufferId y = l.buffer("output", r.in(1, 9));
    l.op({last, there[static_cast<size_t>(r.in(0, there.size() - 1))]}, {y}, r.in(1, 9), {}, 0, r.percent(50),
         r.percent(50));
    return l.take(y);
}

struct Numbers {
    int64_t saved = 0, needs = 0, extra_ns = 0;
    auto operator<=>(const Numbers &) const = default;
    bool beats(const Numbers &o) const { return saved <= o.saved && needs <= o.needs && extra_ns <= o.extra_ns; }
};

// By laying out: the schedule's frame, slabs and the ops that it runs again.
Numbers laid_out(const std::shared_ptr<const Differentiated> &layer, const LayerPolicy &policy, LayoutKey key) {
    const DeviceTable table = counting_table();
    const Schedule s = make_schedule(layer, policy, true, {1, 1}, {});
    if (!s.saves_input) key.x_in_frame = false;
    const Layout l = make_layout(s, key);
    Numbers n{l.frame_bytes, l.frame_bytes + std::max(l.forward_slab, l.backward_slab), 0};
    for (const ScheduledOp &op : s.backward)
        if (op.replay) n.extra_ns += table.ns(s.op(op).cost({1, 1}), DType::f32);
    return n;
}

Numbers numbers_of(const MeasuredPolicy &c) { return {c.saved, c.needs(), c.extra_ns}; }

struct Searched {
    std::vector<MeasuredPolicy> found;
    int64_t slack_ns = 0;
    KeepCounts counts;
};
Searched search(const std::shared_ptr<const Differentiated> &layer, const LayoutKey &key, const KeepLimits &limits) {
    const DeviceTable table = counting_table();
    Searched s;
    s.found = PolicyEnumerator(layer, {1, 1}, {}, table).pareto(key, limits, &s.slack_ns, &s.counts);
    return s;
}

// Every set's numbers.
template <class F>
void each_set(const std::shared_ptr<const Differentiated> &layer, const LayoutKey &key, F &&f) {
    const std::vector<BufferId> choices = choices_of(*layer->program);
    for (uint64_t kept = 0; kept < uint64_t{1} << choices.size(); ++kept) {
        LayerPolicy policy(layer->program->buffers.size(), Storage::replay);
        policy[layer->program->input] = Storage::keep;
        for (size_t i = 0; i < choices.size(); ++i)
            if ((kept >> i & 1) != 0) policy[choices[i]] = Storage::keep;
        f(laid_out(layer, policy, key));
    }
}

}  // namespace

TEST_CASE("what a layer keeps: the best of all sets, on drawn programs") {
    int64_t sets = 0, states = 0, layouts = 0, policies = 0, most = 0;
    for (uint64_t seed = 0; seed < 300; ++seed) {
        CAPTURE(seed);
        const auto layer = drawn_layer(seed);
        const LayoutKey key = key_of(static_cast<int64_t>(seed % 8));
        std::set<Numbers> all;
        each_set(layer, key, [&](const Numbers &n) { ++sets, all.insert(n); });
        std::set<Numbers> best;
        for (const Numbers &n : all)
            if (std::none_of(all.begin(), all.end(), [&](const Numbers &o) { return o != n && o.beats(n); }))
                best.insert(n);
        const Searched s = search(layer, key, {});
        CHECK(s.slack_ns == 0);
        std::set<Numbers> found;
        for (const MeasuredPolicy &c : s.found) {
            found.insert(numbers_of(c));
            CHECK(laid_out(layer, c.policy, key) == numbers_of(c));
        }
        CHECK(found == best);
        CHECK(found.size() == s.found.size());
        states += s.counts.states, layouts += s.counts.layouts, policies += static_cast<int64_t>(found.size());
        most = std::max(most, static_cast<int64_t>(found.size()));
    }
    std::printf("what a layer keeps: %lld sets, %lld policies (at most %lld), %lld states looked at, %lld laid out\n",
                static_cast<long long>(sets), static_cast<long long>(policies), static_cast<long long>(most),
                static_cast<long long>(states), static_cast<long long>(layouts));
    CHECK(most > 15);
    CHECK(layouts < sets / 4);
}

TEST_CASE("what a layer keeps: with limits, no set is better by more than was said") {
    int64_t inexact = 0, unknown = 0, ended = 0;
    for (uint64_t seed = 0; seed < 150; ++seed) {
        CAPTURE(seed);
        const auto layer = drawn_layer(seed);
        const LayoutKey key = key_of(static_cast<int64_t>(seed % 8));
        KeepLimits limits;
        limits.states = 20, limits.layouts = 4, limits.policies = 3, limits.all_states = seed % 4 == 0 ? 40 : 4000;
        const Searched s = search(layer, key, limits);
        REQUIRE(!s.found.empty());
        CHECK(s.found.size() <= 3);
        inexact += s.slack_ns > 0;
        if (s.slack_ns == KeepSearch::unknown) {
            ++unknown, ended += s.counts.states >= limits.all_states;
            continue;
        }
        each_set(layer, key, [&](const Numbers &n) {
            CHECK(std::any_of(s.found.begin(), s.found.end(), [&](const MeasuredPolicy &c) {
                return c.saved <= n.saved && c.needs() <= n.needs && c.extra_ns <= n.extra_ns + s.slack_ns;
            }));
        });
    }
    CHECK(inexact > 30);
    CHECK(ended > 5);
    CHECK(unknown > ended);
    CHECK(unknown < inexact);
}

TEST_CASE("what a layer keeps: a layer as FP8 makes it, with 18 tensors to choose from, exactly and soon") {
    const auto layer = keep_test::fp8_layer();
    CHECK(choices_of(*layer->program).size() == 18);
    for (const int64_t bits : {3, 7}) {
        const Searched s = search(layer, key_of(bits), {});
        CHECK(s.slack_ns == 0);
        CHECK(s.counts.states < 20000);
        CHECK(s.counts.layouts < 2000);
        CHECK(s.found.size() > 20);
        Random r(5);
        for (int i = 0; i < 300; ++i) {
            LayerPolicy policy(layer->program->buffers.size(), Storage::replay);
            policy[layer->program->input] = Storage::keep;
            for (BufferId b : choices_of(*layer->program))
                if (r.percent(50)) policy[b] = Storage::keep;
            const Numbers n = laid_out(layer, policy, key_of(bits));
            CHECK(std::any_of(s.found.begin(), s.found.end(),
                              [&](const MeasuredPolicy &c) { return numbers_of(c).beats(n); }));
        }
    }
}

TEST_CASE("what a layer keeps: layers with experts, of 21 to 48 tensors to choose from, bounded and honest") {
    const KeepLimits limits;
    for (const int64_t experts : {3, 6, 12}) {
        CAPTURE(experts);
        const auto layer = keep_test::moe_layer(experts);
        const std::vector<BufferId> choices = choices_of(*layer->program);
        CHECK(static_cast<int64_t>(choices.size()) == 12 + 3 * experts);
        const Searched s = search(layer, key_of(7), limits);
        CHECK(s.counts.states <= limits.all_states + 2);
        CHECK(s.counts.layouts <= 3 * limits.layouts);
        CHECK(static_cast<int64_t>(s.found.size()) <= limits.policies);
        CHECK(s.found.front().saved < s.found.back().saved);
        if (s.slack_ns == KeepSearch::unknown) continue;
        Random r(7);
        for (int i = 0; i < 300; ++i) {
            LayerPolicy policy(layer->program->buffers.size(), Storage::replay);
            policy[layer->program->input] = Storage::keep;
            const int64_t share = r.in(0, 100);
            for (BufferId b : choices)
                if (r.percent(share)) policy[b] = Storage::keep;
            const Numbers n = laid_out(layer, policy, key_of(7));
            CHECK(std::any_of(s.found.begin(), s.found.end(), [&](const MeasuredPolicy &c) {
                return c.saved <= n.saved && c.needs() <= n.needs && c.extra_ns <= n.extra_ns + s.slack_ns;
            }));
        }
    }
}

TEST_CASE("what a layer keeps: a program of more than 64 tensors") {
    const auto layer = keep_test::moe_layer(36);
    CHECK(layer->program->buffers.size() > 120);
    KeepLimits limits;
    limits.states = 500, limits.all_states = 2000;
    const Searched s = search(layer, key_of(7), limits);
    CHECK(s.slack_ns == KeepSearch::unknown);
    CHECK(s.found.size() >= 2);
    CHECK(s.found.back().extra_ns == 0);
    for (const MeasuredPolicy &c : s.found) CHECK(laid_out(layer, c.policy, key_of(7)) == numbers_of(c));
}

TEST_CASE("what a layer keeps: what must stay is never made again, where it is needed") {
    int64_t stayed = 0;
    for (uint64_t seed = 0; seed < 300; ++seed) {
        CAPTURE(seed);
        const auto layer = drawn_layer(seed);
        const Program &p = *layer->program;
        for (const MeasuredPolicy &c : search(layer, key_of(7), {}).found) {
            const Schedule s = make_schedule(layer, c.policy, true, {1, 1}, {});
            std::set<BufferId> saved, read;
            for (int32_t v : s.saved) saved.insert(s.values[v].buffer);
            for (const ScheduledOp &op : s.backward)
                for (int32_t v : op.in) read.insert(s.values[v].buffer);
            for (BufferId b : read) {
                if (b >= static_cast<BufferId>(p.buffers.size()) || !p.buffers[b].always_kept) continue;
                CHECK(saved.count(b) == 1);
                CHECK(c.policy[b] == Storage::keep);
                ++stayed;
            }
        }
    }
    CHECK(stayed > 100);
}

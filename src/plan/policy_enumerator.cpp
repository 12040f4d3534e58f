// SPDX-License-Identifier: Apache-2.0
#include "plan/policy_enumerator.hpp"

#include <algorithm>

#include "base/sizes.hpp"
#include "plan/times.hpp"

namespace mdlm {
namespace {

constexpr const char *choosing = "when it looked at what a layer may keep";

}  // namespace

PolicyEnumerator::PolicyEnumerator(std::shared_ptr<const Differentiated> layer, Extent bound, const Traits &traits,
                                   const DeviceTable &table, Cancellation *cancellation)
    : layer_(std::move(layer)), bound_(bound), traits_(traits), table_(table), cancellation_(cancellation),
      replay_(*layer_) {
    const DType dtype = dtype_of(*layer_->program);
    int64_t total = 0;  // that no sum of what is alive is larger than
    const auto workspace = [&](const Op &op) {
        const int64_t bytes = op.workspace(traits_, bound_);
        const int64_t all = bytes > 0 ? rounded(bytes) : 0;
        total = add(total, all);
        return all;
    };
    for (const auto &op : layer_->program->ops) {
        weights_.op_ns.push_back(table_.ns(op->cost(bound_), dtype));
        forward_ns_ = add(forward_ns_, weights_.op_ns.back());
        weights_.workspace.push_back(workspace(*op));
    }
    for (const auto &op : layer_->backward) {
        backward_ns_ = add(backward_ns_, table_.ns(op->cost(bound_), dtype));
        weights_.backward_workspace.push_back(workspace(*op));
    }
    for (const Buffer &b : layer_->buffers) total = add(total, weights_.bytes.emplace_back(rounded(b.bytes(bound_))));
}

LayerPolicy PolicyEnumerator::input_only() const { return replay_all(*layer_->program, Storage::keep); }

MeasuredPolicy PolicyEnumerator::measure(const LayerPolicy &policy, const LayoutKey &wanted) const {
    poll(cancellation_, choosing);
    const Schedule s = make_schedule(layer_, policy, true, bound_, traits_);
    LayoutKey key = wanted;
    if (!s.saves_input) key.x_in_frame = key.x_staged = false, key.shard_bytes = 0;
    const Layout l = make_layout(s, key);
    MeasuredPolicy c;
    c.policy = policy;
    c.saved = l.frame_bytes, c.host = l.staged_bytes;
    c.forward = add(l.frame_bytes, l.forward_slab), c.backward = add(l.frame_bytes, l.backward_slab);
    c.extra_ns = times_of(s, s.backward, bound_, table_).replayed_ns;
    c.saves_input = s.saves_input;
    return c;
}

std::vector<MeasuredPolicy> PolicyEnumerator::pareto(const LayoutKey &key, int64_t *slack_ns) const {
    return pareto(key, KeepLimits{}, slack_ns);
}

std::vector<MeasuredPolicy> PolicyEnumerator::pareto(const LayoutKey &key, const KeepLimits &limits, int64_t *slack_ns,
                                                     KeepCounts *counts) const {
    std::vector<MeasuredPolicy> found;
    KeepSearch search(replay_, weights_, *layer_, key.x_in_frame, key.y_in_slab, limits, cancellation_);
    int64_t slack = search.run([&](const BufferSet &kept) {
        LayerPolicy policy = input_only();
        kept.each([&](BufferId b) { policy[b] = Storage::keep; });
        found.push_back(measure(policy, key));
        return found.back().needs();
    });
    if (slack == KeepSearch::unknown)  // the two ends came last
        std::stable_sort(found.begin(), found.end(),
                         [](const MeasuredPolicy &a, const MeasuredPolicy &b) { return a.saved < b.saved; });
    keep_pareto(
        found, [](const MeasuredPolicy &c) { return c.saved; }, [](const MeasuredPolicy &c) { return c.needs(); },
        [](const MeasuredPolicy &c) { return c.extra_ns; });
    slack = std::min(slack + keep_few(found, limits.policies), KeepSearch::unknown);
    if (slack_ns != nullptr) *slack_ns = slack;
    if (counts != nullptr) *counts = search.counts();
    return found;
}

int64_t PolicyEnumerator::passing_bytes(const LayoutKey &key) const {
    return make_layout(make_schedule(layer_, {}, false, bound_, traits_), key).forward_slab;
}

// With a given slack each is left that none before it covers. What covers saves no more, so it comes before.
int64_t keep_few(std::vector<MeasuredPolicy> &list, int64_t most) {
    const auto covers = [](const MeasuredPolicy &a, const MeasuredPolicy &b, int64_t slack) {
        return a.saved <= b.saved && a.needs() <= b.needs() && a.extra_ns - b.extra_ns <= slack;
    };
    const auto few = [&](int64_t slack) {
        std::vector<MeasuredPolicy> left;
        for (const MeasuredPolicy &c : list)
            if (std::none_of(left.begin(), left.end(), [&](const MeasuredPolicy &l) { return covers(l, c, slack); }))
                left.push_back(c);
        return left;
    };
    int64_t slack = 0, enough = 0;
    if (static_cast<int64_t>(list.size()) <= most) return 0;
    for (const MeasuredPolicy &c : list) enough = std::max(enough, c.extra_ns);
    if (static_cast<int64_t>(few(enough).size()) > most) {  // too many even where time is of no matter
        const auto least = *std::min_element(list.begin(), list.end(),
                                             [](const auto &a, const auto &b) { return a.needs() < b.needs(); });
        std::vector<MeasuredPolicy> left;
        for (int64_t i = 0; i + 1 < most; ++i)
            left.push_back(
                list[static_cast<size_t>(i) * (list.size() - 1) / static_cast<size_t>(std::max<int64_t>(most - 2, 1))]);
        if (std::none_of(left.begin(), left.end(), [&](const auto &l) { return l.policy == least.policy; }))
            left.push_back(least);
        list = std::move(left);
        return KeepSearch::unknown;
    }
    while (slack < enough) {
        const int64_t middle = slack + (enough - slack) / 2;
        if (static_cast<int64_t>(few(middle).size()) <= most) enough = middle;
        else slack = middle + 1;
    }
    list = few(slack);
    return slack;
}

}  // namespace mdlm

// SPDX-License-Identifier: Apache-2.0
#include "plan/keep_search.hpp"

#include <algorithm>

namespace mdlm {
namespace {

constexpr const char *choosing = "when it looked at what a layer may keep";

}  // namespace

// Of two with the same bounds the one that is not whole comes first: all that are whole come together then.
bool KeepSearch::Later::operator()(const Node &a, const Node &b) const {
    if (a.saved() != b.saved()) return a.saved() > b.saved();
    if (a.extra_ns() != b.extra_ns()) return a.extra_ns() > b.extra_ns();
    if (a.state.done() != b.state.done()) return a.state.done();
    return a.state.kept > b.state.kept;
}

// Of the sets measured, which all save no more than what is to come, the least that is needed by those that take no
// more time.
int64_t KeepSearch::rival(int64_t extra_ns) const {
    const auto above = least_.upper_bound(extra_ns + slack_ns_);
    return above == least_.begin() ? INT64_MAX : std::prev(above)->second;
}

void KeepSearch::measured(int64_t extra_ns, int64_t needs) {
    if (rival(extra_ns) <= needs) return;
    const auto [at, is_new] = least_.insert_or_assign(extra_ns, needs);
    auto next = std::next(at);
    while (next != least_.end() && next->second >= needs) next = least_.erase(next);
}

// True: whatever is chosen, a set that was measured is as good.
bool KeepSearch::pass_beaten(Node &node) const {
    while (node.next < node.rests->size() && rival(node.extra_ns()) <= node.needs()) ++node.next;
    return node.next == node.rests->size();
}

void KeepSearch::look_at(KeepState state) {
    poll(cancellation_, choosing);
    ++counts_.states;
    Node node;
    node.alive = bound_(state, choices_.open_ops(state));
    node.rests = &choices_.rests(state);
    node.state = std::move(state);
    if (!pass_beaten(node)) open_.push(std::move(node));
}

void KeepSearch::mind_limits() {
    if (counts_.states < limits_.states && counts_.layouts < limits_.layouts) return;
    limits_.states = std::max(limits_.states, counts_.states) * 5 / 4;
    limits_.layouts = std::max(limits_.layouts, counts_.layouts) * 5 / 4;
    slack_ns_ = std::max(2 * slack_ns_, most_ns_ / 1024 + 1);
}

int64_t KeepSearch::run(const Measure &measure) {
    look_at(choices_.first());
    for (const KeepChoices::Rest &r : *open_.top().rests) most_ns_ = std::max(most_ns_, r.extra_ns);
    while (!open_.empty()) {
        poll(cancellation_, choosing);
        Node node = open_.top();
        open_.pop();
        const size_t next = node.next;
        if (pass_beaten(node)) continue;
        if (node.next != next) {
            open_.push(std::move(node));
        } else if (node.state.done()) {
            ++counts_.layouts;
            { int64_t m = measure(node.state.kept); if (getenv("RD2")) fprintf(stderr, "s %lld t %lld lb %lld (%lld %lld) needs %lld rival %lld\n", (long long)node.saved(), (long long)node.extra_ns(), (long long)node.needs(), (long long)node.alive.most, (long long)node.alive.below_rest, (long long)m, (long long)rival(node.extra_ns()));
            measured(node.state.extra_ns, m); }
        } else {
            for (const bool keep : {false, true}) look_at(choices_.choose(node.state, keep));
        }
        mind_limits();
    }
    return slack_ns_;
}

}  // namespace mdlm

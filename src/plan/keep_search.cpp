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

void KeepSearch::lay_out(const KeepState &state, const Measure &measure) {
    ++counts_.layouts;
    const int64_t needs = measure(state.kept);
    const auto above = least_.upper_bound(state.extra_ns);
    if (above != least_.begin() && std::prev(above)->second <= needs) return;
    const auto at = least_.insert_or_assign(state.extra_ns, needs).first;
    for (auto next = std::next(at); next != least_.end() && next->second >= needs;) next = least_.erase(next);
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
    bool reached = false;
    for (const auto &[count, limit] :
         {std::pair{counts_.states, &limits_.states}, std::pair{counts_.layouts, &limits_.layouts}})
        if (count >= *limit) *limit += *limit / 8 + 1, reached = true;
    if (reached) slack_ns_ = std::min(std::max(2 * slack_ns_, most_ns_ / 2048 + 1), most_ns_);
}

int64_t KeepSearch::run(const Measure &measure) {
    const KeepState first = choices_.first();
    for (const KeepChoices::Rest &r : choices_.rests(first)) most_ns_ = std::max(most_ns_, r.extra_ns);
    look_at(first);
    while (!open_.empty() && counts_.states < limits_.all_states) {
        poll(cancellation_, choosing);
        Node node = open_.top();
        open_.pop();
        const size_t next = node.next;
        if (pass_beaten(node)) continue;
        if (node.next != next) {
            open_.push(std::move(node));
        } else if (node.state.done()) {
            lay_out(node.state, measure);
        } else {
            for (const bool keep : {false, true}) look_at(choices_.choose(node.state, keep));
        }
        mind_limits();
    }
    if (open_.empty()) return slack_ns_;
    // At least the two ends.
    for (const bool keep : {false, true}) {
        KeepState state = first;
        while (!state.done()) state = choices_.choose(state, keep);
        lay_out(state, measure);
    }
    return unknown;
}

}  // namespace mdlm

// SPDX-License-Identifier: Apache-2.0
#include "planner/steps.hpp"

#include <algorithm>

namespace mdlm::planner {

int64_t cost_at(const Steps &steps, int64_t bytes) {
    const auto next =
        std::upper_bound(steps.begin(), steps.end(), bytes, [](int64_t b, const Step &s) { return b < s.bytes; });
    return next == steps.begin() ? infinite : next[-1].ns;
}

void Merge::add(const Way &way) {
    Stream s;
    s.rest = way.rest->data(), s.rest_end = s.rest + way.rest->size();
    s.inner = s.inner_end = nullptr;
    s.left = way.left, s.ns = way.ns;
    int64_t bytes = std::max(way.floor, s.rest->bytes + way.left);
    if (way.inner != nullptr) {
        s.inner = way.inner->data(), s.inner_end = s.inner + way.inner->size();
        bytes = std::max(bytes, s.inner->bytes);
        while (s.inner + 1 != s.inner_end && s.inner[1].bytes <= bytes) ++s.inner;
    }
    const auto fits = [](int64_t b, const Step &step) { return b < step.bytes; };
    s.rest = std::upper_bound(s.rest + 1, s.rest_end, bytes - way.left, fits) - 1;
    Head h{bytes, s.ns + s.rest->ns + (s.inner != nullptr ? s.inner->ns : 0), static_cast<uint32_t>(streams_.size())};
    if (streams_.empty()) heads_.clear();
    streams_.push_back(s);
    heads_.push_back(h);
}

namespace {

// The first step behind `low` that costs less than `most`, or the end; `low` does not. Costs fall along the list: by
// jumps that double.
const Step *first_below(const Step *low, const Step *end, int64_t most) {
    int64_t jump = 1;
    while (jump < end - low && low[jump].ns >= most) low += jump, jump *= 2;
    const Step *high = jump < end - low ? low + jump : end;
    while (high - low > 1) {
        const Step *middle = low + (high - low) / 2;
        (middle->ns >= most ? low : high) = middle;
    }
    return high;
}
// The last step from `low` on that so many bytes are enough for, as they are for `low`.
const Step *last_within(const Step *low, const Step *end, int64_t bytes) {
    int64_t jump = 1;
    while (jump < end - low && low[jump].bytes <= bytes) low += jump, jump *= 2;
    const Step *high = jump < end - low ? low + jump : end;
    while (high - low > 1) {
        const Step *middle = low + (high - low) / 2;
        (middle->bytes <= bytes ? low : high) = middle;
    }
    return low;
}

}  // namespace

bool Merge::advance(Stream &s, int64_t best, Head &head) {
    if (s.inner == nullptr) {
        s.rest = first_below(s.rest, s.rest_end, best - s.ns);
        if (s.rest == s.rest_end) return false;
        head.bytes = s.rest->bytes + s.left;
        head.ns = s.rest->ns + s.ns;
        return true;
    }
    while (true) {
        // Each list alone must come down to what the other at its cheapest would leave to it; then one step of either.
        const int64_t most = best - s.ns, rest_most = most - s.inner_end[-1].ns, inner_most = most - s.rest_end[-1].ns;
        int64_t bytes = head.bytes;
        if (s.rest->ns >= rest_most || s.inner->ns >= inner_most) {
            if (s.rest_end[-1].ns >= rest_most) return false;
            if (s.rest->ns >= rest_most)
                bytes = std::max(bytes, first_below(s.rest, s.rest_end, rest_most)->bytes + s.left);
            if (s.inner->ns >= inner_most)
                bytes = std::max(bytes, first_below(s.inner, s.inner_end, inner_most)->bytes);
            s.rest = last_within(s.rest, s.rest_end, bytes - s.left);
            s.inner = last_within(s.inner, s.inner_end, bytes);
        } else {
            const int64_t rest = s.rest + 1 != s.rest_end ? s.rest[1].bytes + s.left : infinite;
            const int64_t inner = s.inner + 1 != s.inner_end ? s.inner[1].bytes : infinite;
            bytes = std::min(rest, inner);
            s.rest += rest == bytes, s.inner += inner == bytes;
        }
        head.bytes = bytes;
        head.ns = s.ns + s.rest->ns + s.inner->ns;
        if (head.ns < best) return true;
        poll(cancellation_, searching);
    }
}

void Merge::sift_down(size_t at) {
    const Head moved = heads_[at];
    for (size_t child; (child = 2 * at + 1) < heads_.size(); at = child) {
        if (child + 1 < heads_.size() && heads_[child + 1].before(heads_[child])) ++child;
        if (!heads_[child].before(moved)) break;
        heads_[at] = heads_[child];
    }
    heads_[at] = moved;
}

void Merge::run(int64_t limit, Steps &out) {
    out.clear();
    if (streams_.empty()) return;
    for (size_t i = heads_.size() / 2; i-- > 0;) sift_down(i);
    int64_t best = infinite;
    while (!heads_.empty() && heads_[0].bytes <= limit) {
        poll(cancellation_, searching);
        Head &top = heads_[0];
        if (top.ns < best) {
            best = top.ns;
            out.push_back({top.bytes, top.ns});
        }
        if (!advance(streams_[top.stream], best, top)) {
            top = heads_.back();
            heads_.pop_back();
            if (heads_.empty()) break;
        }
        sift_down(0);
    }
}

int64_t thin(Steps &steps, size_t most, Cancellation *cancellation) {
    if (steps.size() <= most) return 0;
    // A step is left out while it gains less than `gain` over the last one that stays; the least gain that leaves few
    // enough.
    const auto left_with = [&](int64_t gain) {
        poll(cancellation, searching);
        size_t count = 1;
        for (int64_t ns = steps[0].ns; const Step &s : steps)
            if (ns - s.ns > gain) ns = s.ns, ++count;
        return count;
    };
    int64_t low = 0, high = steps.front().ns - steps.back().ns;
    while (low < high) {
        const int64_t middle = low + (high - low) / 2;
        if (left_with(middle) <= most) high = middle;
        else low = middle + 1;
    }
    size_t kept = 1;
    for (size_t i = 1; i < steps.size(); ++i)
        if (steps[kept - 1].ns - steps[i].ns > high) steps[kept++] = steps[i];
    steps.resize(kept);
    return high;
}

}  // namespace mdlm::planner

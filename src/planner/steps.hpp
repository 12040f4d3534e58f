// SPDX-License-Identifier: Apache-2.0
// Step functions "bytes available -> least nanoseconds", and the cheapest of many at every number of bytes, by a merge.
#pragma once
#include <cstddef>
#include <cstdint>
#include <limits>
#include <vector>

#include "base/cancellation.hpp"

namespace mdlm::planner {

inline constexpr const char *searching = "in its search";  // where a call was cancelled
inline constexpr int64_t infinite = std::numeric_limits<int64_t>::max() / 2;

// A step of such a function: from `bytes` on it costs `ns`. In a list bytes rise and ns fall, both strictly; below the
// first nothing fits.
struct Step {
    int64_t bytes, ns;
};
using Steps = std::vector<Step>;

// The cost with so many bytes; infinite when nothing fits.
int64_t cost_at(const Steps &steps, int64_t bytes);

// A way to go on: with m >= floor bytes it costs ns + inner(m) + rest(m - left). rest and inner are not empty; inner
// may be null.
struct Way {
    const Steps *rest = nullptr;
    const Steps *inner = nullptr;
    int64_t left = 0, floor = 0, ns = 0;
};

// The cheapest of many ways at every number of bytes up to a limit. Keeps its memory between calls.
class Merge {
public:
    explicit Merge(Cancellation *cancellation = nullptr) : cancellation_(cancellation) {}
    void clear() { streams_.clear(); }
    void add(const Way &way);
    // out loses what it held.
    void run(int64_t limit, Steps &out);

private:
    struct Stream {
        const Step *rest, *rest_end;    // rest: the step in use
        const Step *inner, *inner_end;  // null when there is none
        int64_t left, ns;
    };
    struct Head {
        int64_t bytes, ns;
        uint32_t stream;
        bool before(const Head &b) const { return bytes != b.bytes ? bytes < b.bytes : ns < b.ns; }
    };
    // The stream's next step that costs less than `best`; false at its end.
    bool advance(Stream &s, int64_t best, Head &head);
    void sift_down(size_t at);

    Cancellation *cancellation_;
    std::vector<Stream> streams_;
    std::vector<Head> heads_;  // by stream until run makes a heap of them
};

// Leaves at most `most` steps (at least 1), the first among them, by leaving out those that gain least. Returns by how
// much the cost at any number of bytes may have risen; 0 if none was left out.
int64_t thin(Steps &steps, size_t most, Cancellation *cancellation = nullptr);

}  // namespace mdlm::planner

// SPDX-License-Identifier: Apache-2.0
// How kernels are cut into tasks: by shapes only, unless no sum is cut (own products, attention). And how an error
// leaves a task.
#pragma once
#include <algorithm>
#include <cstdint>
#include <mutex>

#include "base/pool.hpp"
#include "base/sizes.hpp"
#include "base/status.hpp"

namespace mdlm::cpu {

// Calls body(begin, end, worker) on consecutive parts of [0, count) of about `weight` elements, `each` elements an
// item.
template <class Body>
void parallel_ranges(Pool &pool, int64_t count, int64_t each, Body &&body, int64_t weight = 16384) {
    const int64_t step = std::max<int64_t>(1, weight / std::max<int64_t>(1, each));
    pool.parallel_for(ceil_div(count, step),
                      [&](int64_t i, int32_t worker) { body(i * step, std::min(count, (i + 1) * step), worker); });
}

// Sums over rows: at most this many chunks of consecutive rows, each summed on its own, then added in order
// (row_sums.hpp).
inline constexpr int64_t most_chunks = 64;
struct Chunks {
    int64_t rows, step, count;
    explicit Chunks(int64_t r)
        : rows(r), step(std::max<int64_t>(1, ceil_div(r, most_chunks))), count(ceil_div(r, step)) {}
    int64_t begin(int64_t i) const { return i * step; }
    int64_t end(int64_t i) const { return std::min(rows, (i + 1) * step); }
    // Of a bound: not less than count of any smaller number of rows.
    static int64_t most(int64_t rows) { return std::min(rows, most_chunks); }
};

// Keeps the error of the lowest index, so that which one is reported does not depend on the threads either.
class FirstError {
public:
    void keep(int64_t index, const Error &error) {
        const std::lock_guard lock(mutex_);
        if (index_ < 0 || index < index_) {
            index_ = index;
            error_ = error;
        }
    }
    void rethrow() const {
        if (index_ >= 0) throw Error(error_);
    }

private:
    std::mutex mutex_;
    int64_t index_ = -1;
    Error error_{MDLM_OK, ""};
};

}  // namespace mdlm::cpu

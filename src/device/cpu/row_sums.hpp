// SPDX-License-Identifier: Apache-2.0
// Sums over rows (tokens, heads) that stay right when there are millions: chunks of consecutive rows, in blocks. A
// block's few rows are added in float, blocks and chunks in double, all in an order that depends on the number of rows
// only; the sum is rounded once.
#pragma once
#include <cstring>

#include "device/cpu/tasks.hpp"

namespace mdlm::cpu {

class RowSums {
public:
    // Of `width` columns. The workspace has bytes() bytes.
    RowSums(int64_t rows, int64_t width, void *workspace)
        : chunks_(rows), width_(width), totals_(static_cast<double *>(workspace)),
          blocks_(reinterpret_cast<float *>(totals_ + chunks_.count * width)) {}

    // Calls body(begin, end, sums) on blocks of rows, which it adds to sums[width], zero before.
    template <class Body>
    void run(Pool &pool, Body &&body) const {
        pool.parallel_for(chunks_.count, [&](int64_t i, int32_t worker) {
            float *sums = blocks_ + worker * width_;
            const int64_t first = chunks_.begin(i), last = chunks_.end(i);
            for (int64_t begin = first; begin < last; begin += block) {
                if (width_ > 0) std::memset(sums, 0, static_cast<size_t>(width_) * sizeof(float));
                body(begin, std::min(last, begin + block), sums);
                add_block(sums, width_, totals_ + i * width_, begin == first);
            }
        });
    }
    // to[c] (+)= the sum of column first + c, for c < count.
    void add_to(Pool &pool, int64_t first, int64_t count, float *to, bool accumulate) const;

    // Of a bound: not less than for any smaller number of rows, columns or threads.
    static int64_t bytes(int64_t rows, int64_t width, int32_t threads) {
        return add(mul(mul(Chunks::most(rows), width), sizeof(double)), mul(mul(threads, width), sizeof(float)));
    }

private:
    // Rounding that goes one way in every addition takes 16 / 2 units in the last place of a float at most, 5e-7.
    static constexpr int64_t block = 16;
    // totals (+)= sums
    static void add_block(const float *sums, int64_t width, double *totals, bool assign);

    Chunks chunks_;
    int64_t width_;
    double *totals_;  // [chunks][width]
    float *blocks_;   // [workers][width]
};

}  // namespace mdlm::cpu

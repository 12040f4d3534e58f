// SPDX-License-Identifier: Apache-2.0
#include "device/cpu/tiling.hpp"

#include <algorithm>
#include <functional>
#include <vector>

#include "base/sizes.hpp"
#include "device/cpu/matmul.hpp"
#include "device/cpu/product.hpp"

namespace mdlm::cpu {
namespace {

// So many tiles that a worker which is disturbed can take fewer, unless they would be small and soon done anyway.
constexpr int64_t tiles_a_worker = 4, small = 256 * 256;
// Packing one element of a or b takes about as long as this many multiplications.
constexpr int64_t packing = 16;
// Not worth a task of its own.
constexpr int64_t least_rows = 48, least_columns = 64;

// `size` in `count` equal parts of whole steps; the last may be smaller.
int64_t part(int64_t size, int64_t count, int64_t step) {
    return std::min(size, ceil_div(ceil_div(size, count), step) * step);
}

}  // namespace

int64_t done_after(int64_t m, int64_t n, const Tiling &tiling, int32_t workers) {
    // A heap whose first is the worker that is free first.
    std::vector<int64_t> busy(static_cast<size_t>(workers), 0);
    for (int64_t i = 0; i < m; i += tiling.rows)
        for (int64_t j = 0; j < n; j += tiling.columns) {
            const int64_t rows = std::min(tiling.rows, m - i), columns = std::min(tiling.columns, n - j);
            std::pop_heap(busy.begin(), busy.end(), std::greater<>());
            busy.back() += rows * columns + packing * (rows + columns);
            std::push_heap(busy.begin(), busy.end(), std::greater<>());
        }
    return *std::max_element(busy.begin(), busy.end());
}

Tiling tiling_for(int64_t m, int64_t n, int32_t workers) {
    const int64_t least_down = ceil_div(m, own_rows), least_across = ceil_div(n, own_columns);
    const int64_t most_down = ceil_div(m, least_rows), most_across = ceil_div(n, least_columns);
    const int64_t many = std::clamp<int64_t>(m * n / small, workers, tiles_a_worker * workers);
    const int64_t wanted = workers == 1 ? 1 : std::min(many, most_down * most_across);
    const int64_t limit = 2 * std::max(wanted, least_down * least_across);
    Tiling best{part(m, least_down, product_m), part(n, least_across, product_n)};
    int64_t first = -1;
    for (int64_t down = least_down; down <= most_down && down * least_across <= limit; ++down)
        for (int64_t across = std::max(least_across, ceil_div(wanted, down));
             across <= most_across && down * across <= limit; ++across) {
            const Tiling tiling{part(m, down, product_m), part(n, across, product_n)};
            const int64_t done = done_after(m, n, tiling, workers);
            if (first >= 0 && done >= first) continue;
            first = done;
            best = tiling;
        }
    return best;
}

}  // namespace mdlm::cpu

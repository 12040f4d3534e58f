// SPDX-License-Identifier: Apache-2.0
// How our own product is cut into tiles for several threads.
#pragma once
#include <cstdint>

namespace mdlm::cpu {

struct Tiling {
    int64_t rows, columns;  // of a tile; those at the lower and right edge may be smaller
};

// Of a product [m, n]: equal tiles, taken row by row by whichever worker is free. Of the ways to cut that give every
// worker a few tiles, or one where the product is small, that which is done first, by the count of done_after.
Tiling tiling_for(int64_t m, int64_t n, int32_t workers);

// What the busiest worker does of a product cut so, in multiplications for each of the k elements, packing included.
int64_t done_after(int64_t m, int64_t n, const Tiling &tiling, int32_t workers);

}  // namespace mdlm::cpu

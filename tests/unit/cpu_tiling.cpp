// SPDX-License-Identifier: Apache-2.0
// How our own product is cut for several threads.
#include <initializer_list>
#include <utility>

#include "device/cpu/matmul.hpp"
#include "device/cpu/tiling.hpp"
#include "doctest/doctest.h"

using namespace mdlm::cpu;

namespace {

constexpr std::pair<int64_t, int64_t> products[] = {{1, 1},       {17, 40},     {128, 256},     {1024, 1024},
                                                    {2048, 1024}, {2048, 3072}, {2048, 6144},   {3072, 1024},
                                                    {4096, 1536}, {769, 513},   {16384, 16384}, {1, 100000}};

double idle(int64_t m, int64_t n, const Tiling &tiling, int32_t workers) {
    return static_cast<double>(done_after(m, n, tiling, workers)) * workers /
               (static_cast<double>(m) * static_cast<double>(n)) -
           1.0;
}

}  // namespace

TEST_CASE("a tile is never larger than our own product takes, nor than the product") {
    for (const auto &[m, n] : products)
        for (const int32_t workers : {1, 2, 3, 7, 64, 256}) {
            const Tiling tiling = tiling_for(m, n, workers);
            INFO(m << " x " << n << ", " << workers << " workers: " << tiling.rows << " x " << tiling.columns);
            CHECK(tiling.rows >= 1);
            CHECK(tiling.columns >= 1);
            CHECK(tiling.rows <= (m < own_rows ? m : own_rows));
            CHECK(tiling.columns <= (n < own_columns ? n : own_columns));
        }
}

TEST_CASE("the busiest worker's share of a large product is nearly even") {
    // With tiles of 720 by 384, nine in all, one of two workers was done 7 % before the other.
    CHECK(idle(2048, 1024, {720, 384}, 2) > 0.12);
    for (const auto &[m, n] : products) {
        if (m * n < 1024 * 1024) continue;
        for (const int32_t workers : {1, 2, 3, 4, 6, 8}) {
            const Tiling tiling = tiling_for(m, n, workers);
            INFO(m << " x " << n << ", " << workers << " workers: " << tiling.rows << " x " << tiling.columns);
            // Packing alone is 5 % with the largest tile; 1 row has no more to share it.
            CHECK(idle(m, n, tiling, workers) < (m == 1 ? 20.0 : 0.2));
        }
    }
}

TEST_CASE("small products are not cut into crumbs, yet every worker gets one") {
    const auto tiles = [](int64_t m, int64_t n, const Tiling &tiling) {
        return ((m + tiling.rows - 1) / tiling.rows) * ((n + tiling.columns - 1) / tiling.columns);
    };
    CHECK(tiles(17, 40, tiling_for(17, 40, 64)) == 1);
    CHECK(tiles(128, 256, tiling_for(128, 256, 2)) == 2);
    CHECK(tiles(1024, 1024, tiling_for(1024, 1024, 2)) >= 8);
    CHECK(tiles(1024, 1024, tiling_for(1024, 1024, 64)) >= 64);
}

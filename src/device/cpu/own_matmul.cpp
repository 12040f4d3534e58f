// Our own matrix product: blocks of a and b are converted to padded float tiles, and a tile of c is summed in float over blocks of k.
#include <algorithm>

#include "base/sizes.hpp"
#include "device/cpu/matmul.hpp"
#include "device/cpu/product.hpp"
#include "device/cpu/tiles.hpp"

namespace mdlm::cpu {
namespace {

constexpr int64_t tile_row = row_of(own_tile), tile_floats = own_tile * tile_row;

void finish(const Matmul &p, const Operands &o, int64_t i0, int64_t m, int64_t j0, int64_t n, float *sums) {
    for (int64_t i = 0; i < m; ++i) {
        float other[own_tile], *row = sums + i * tile_row;
        const int64_t to = (i0 + i) * p.ldc + j0;
        if (p.bias) {
            read(p.type, o.bias, j0, n, other);
            for (int64_t j = 0; j < n; ++j) row[j] += other[j];
        }
        if (p.accumulate) {
            read(p.out, o.c, to, n, other);
            for (int64_t j = 0; j < n; ++j) row[j] += other[j];
        }
        write(p.out, o.c, to, n, row);
    }
}

}  // namespace

int64_t own_workspace() { return 3 * rounded(tile_floats * int64_t{sizeof(float)}); }

void run_own(const Matmul &p, const Operands &o, float *workspace) {
    float *sums = workspace, *a = workspace + own_workspace() / 3 / 4, *b = a + own_workspace() / 3 / 4;
    const Matrix from_a{p.type, o.a, 0, p.lda}, from_b{p.type, o.b, 0, p.ldb};
    for (int64_t i0 = 0; i0 < p.m; i0 += own_tile)
        for (int64_t j0 = 0; j0 < p.n; j0 += own_tile) {
            const int64_t m = std::min(own_tile, p.m - i0), n = std::min(own_tile, p.n - j0);
            const int64_t wide_m = padded(m, product_m), wide_n = padded(n, product_n);
            for (int64_t i = 0; i < wide_m; ++i) std::fill_n(sums + i * tile_row, wide_n, 0.0f);
            for (int64_t p0 = 0; p0 < p.k; p0 += own_tile) {
                const int64_t k = std::min(own_tile, p.k - p0);
                if (p.a_transposed) pack(from_a, p0, k, k, i0, m, wide_m, a, tile_row);
                else pack(from_a, i0, m, wide_m, p0, k, k, a, tile_row);
                if (p.b_transposed) pack_transposed(from_b, j0, n, wide_n, p0, k, k, b, tile_row);
                else pack(from_b, p0, k, k, j0, n, wide_n, b, tile_row);
                product(wide_m, wide_n, k, a, p.a_transposed ? 1 : tile_row, p.a_transposed ? tile_row : 1, b, tile_row, sums, tile_row);
            }
            finish(p, o, i0, m, j0, n, sums);
        }
}

}  // namespace mdlm::cpu

// SPDX-License-Identifier: Apache-2.0
// What the attention kernels share: heads as matrices, and which keys a tile of queries sees.
#pragma once
#include <algorithm>

#include "device/cpu/product.hpp"
#include "device/cpu/tiles.hpp"
#include "device/kernels.hpp"

namespace mdlm::cpu {

// Multiples of 6 rows and of 2 vectors on every instruction set; two tiles of scores stay in the second cache.
inline constexpr int64_t tile_q = 96, tile_k = 96, score_row = row_of(tile_k);

// Head i of group g in sequence b as a matrix [s, d].
inline Matrix head_of(const Attention &a, const Heads &h, int64_t b, int64_t g, int64_t i) {
    const int64_t token = (a.tokens.batch_first ? 1 : a.tokens.batch) * h.row_stride;
    return {a.dtype, h.base, a.tokens.row(0, b) * h.row_stride + g * h.group_stride + i * h.head_stride, token};
}

// Keys that queries [q0, q0 + rows) see: row r sees [first[r], last[r]), all of them together lie in [low, high).
struct VisibleKeys {
    int64_t first[tile_q], last[tile_q], low = 0, high = 0;
    VisibleKeys() = default;
    VisibleKeys(const Mask &mask, int64_t q0, int64_t rows) : low(mask.first(q0)), high(mask.last(q0)) {
        for (int64_t r = 0; r < rows; ++r) {
            first[r] = mask.first(q0 + r);
            last[r] = mask.last(q0 + r);
            low = std::min(low, first[r]);
            high = std::max(high, last[r]);
        }
    }
    // Of the keys [k0, k0 + n), those that row r sees, counted from k0.
    int64_t begin(int64_t r, int64_t k0, int64_t n) const { return std::clamp<int64_t>(first[r] - k0, 0, n); }
    int64_t end(int64_t r, int64_t k0, int64_t n) const {
        return std::max(begin(r, k0, n), std::clamp<int64_t>(last[r] - k0, 0, n));
    }
};

// Of a tile of scores of queries [0, rows) and keys [k0, k0 + columns): row r sees those from begin[r] to end[r],
// counted from k0.
struct Intervals {
    int64_t rows, columns, begin[tile_q], end[tile_q];
    bool whole = true;  // every row sees every key
    Intervals(const VisibleKeys &seen, int64_t r, int64_t k0, int64_t n) : rows(r), columns(n) {
        for (int64_t i = 0; i < rows; ++i) {
            begin[i] = seen.begin(i, k0, n);
            end[i] = seen.end(i, k0, n);
            whole = whole && begin[i] == 0 && end[i] == n;
        }
    }
};

// A result's last step: a 0 has no sign, so that it does not tell whether zeros of keys that are not seen were added.
inline float unsigned_zero(float x) { return x + 0.0f; }

// Where a probability counts for dropout.
inline uint64_t probability_index(const Attention &a, int64_t b, int64_t head, int64_t q, int64_t k) {
    return static_cast<uint64_t>(a.dropout_row(b, head, q) * a.tokens.seq + k);
}

}  // namespace mdlm::cpu

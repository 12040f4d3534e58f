// SPDX-License-Identifier: Apache-2.0
// Packing of activations into padded float tiles.
#pragma once
#include <cstdint>

#include "device/cpu/spans.hpp"

namespace mdlm::cpu {

// A matrix inside an activation: element (i, j) is base[offset + i * row + j].
struct Matrix {
    DType type;
    const void *base;
    int64_t offset, row;
};

// Before row `row` of [.., end) is read or written: asks for the one that comes rows_ahead after it.
template <bool to_write = false>
inline void prefetch_ahead(const Matrix &m, int64_t row, int64_t end, int64_t columns) {
    if (row + rows_ahead < end) prefetch<to_write>(m.type, m.base, m.offset + (row + rows_ahead) * m.row, columns);
}

// to[i * to_row + j] = m(i0 + i, j0 + j) for i < rows, j < columns, and 0 up to padded_rows and padded_columns.
void pack(const Matrix &m, int64_t i0, int64_t rows, int64_t padded_rows, int64_t j0, int64_t columns,
          int64_t padded_columns, float *to, int64_t to_row);
// The same transposed: to[j * to_row + i]; rows and columns are those of m.
void pack_transposed(const Matrix &m, int64_t i0, int64_t rows, int64_t padded_rows, int64_t j0, int64_t columns,
                     int64_t padded_columns, float *to, int64_t to_row);

}  // namespace mdlm::cpu

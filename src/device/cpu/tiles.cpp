#include "device/cpu/tiles.hpp"

#include <algorithm>

namespace mdlm::cpu {
namespace {

template <class T>
void transpose(const T *from, int64_t from_row, int64_t rows, int64_t columns, float *to, int64_t to_row) {
    int64_t i = 0;
    for (; i + 4 <= rows; i += 4) {
        const T *r0 = from + i * from_row, *r1 = r0 + from_row, *r2 = r1 + from_row, *r3 = r2 + from_row;
        for (int64_t j = 0; j < columns; ++j) {
            float *out = to + j * to_row + i;
            out[0] = r0[j], out[1] = r1[j], out[2] = r2[j], out[3] = r3[j];
        }
    }
    for (; i < rows; ++i)
        for (int64_t j = 0; j < columns; ++j) to[j * to_row + i] = from[i * from_row + j];
}

}  // namespace

void pack(const Matrix &m, int64_t i0, int64_t rows, int64_t padded_rows, int64_t j0, int64_t columns, int64_t padded_columns, float *to,
          int64_t to_row) {
    for (int64_t i = 0; i < rows; ++i) {
        read(m.type, m.base, m.offset + (i0 + i) * m.row + j0, columns, to + i * to_row);
        std::fill(to + i * to_row + columns, to + i * to_row + padded_columns, 0.0f);
    }
    for (int64_t i = rows; i < padded_rows; ++i) std::fill_n(to + i * to_row, padded_columns, 0.0f);
}

void pack_transposed(const Matrix &m, int64_t i0, int64_t rows, int64_t padded_rows, int64_t j0, int64_t columns, int64_t padded_columns,
                     float *to, int64_t to_row) {
    const int64_t first = m.offset + i0 * m.row + j0;
    if (m.type == DType::f32) transpose(static_cast<const float *>(m.base) + first, m.row, rows, columns, to, to_row);
    else transpose(static_cast<const bf16 *>(m.base) + first, m.row, rows, columns, to, to_row);
    for (int64_t j = 0; j < columns; ++j) std::fill(to + j * to_row + rows, to + j * to_row + padded_rows, 0.0f);
    for (int64_t j = columns; j < padded_columns; ++j) std::fill_n(to + j * to_row, padded_rows, 0.0f);
}

}  // namespace mdlm::cpu

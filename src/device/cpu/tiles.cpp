// SPDX-License-Identifier: Apache-2.0
#include "device/cpu/targets.hpp"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "device/cpu/tiles.cpp"
#include "hwy/foreach_target.h"

#include <algorithm>

#include "device/cpu/tiles.hpp"
#include "device/cpu/vector-inl.hpp"

HWY_BEFORE_NAMESPACE();
namespace mdlm::cpu::HWY_NAMESPACE {

template <class T>
void transpose(const T *from, int64_t from_row, int64_t rows, int64_t columns, float *to, int64_t to_row) {
    constexpr DType type = sizeof(T) == sizeof(float) ? DType::f32 : DType::bf16;
    int64_t i = 0;
    for (; i + 4 <= rows; i += 4) {
        for (int64_t r = i + rows_ahead; r < std::min(rows, i + rows_ahead + 4); ++r)
            prefetch(type, from, r * from_row, columns);
        transpose_four(from + i * from_row, from_row, columns, to + i, to_row);
    }
    for (; i < rows; ++i)
        for (int64_t j = 0; j < columns; ++j) to[j * to_row + i] = from[i * from_row + j];
}

void transpose_f32(const float *from, int64_t from_row, int64_t rows, int64_t columns, float *to, int64_t to_row) {
    transpose(from, from_row, rows, columns, to, to_row);
}
void transpose_bf16(const bf16 *from, int64_t from_row, int64_t rows, int64_t columns, float *to, int64_t to_row) {
    transpose(from, from_row, rows, columns, to, to_row);
}

}  // namespace mdlm::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace mdlm::cpu {
namespace {
HWY_EXPORT(transpose_f32);
HWY_EXPORT(transpose_bf16);
}  // namespace

void pack(const Matrix &m, int64_t i0, int64_t rows, int64_t padded_rows, int64_t j0, int64_t columns,
          int64_t padded_columns, float *to, int64_t to_row) {
    const int64_t first = m.offset + i0 * m.row + j0;
    for (int64_t i = 0; i < rows; ++i) {
        if (i + rows_ahead < rows) prefetch(m.type, m.base, first + (i + rows_ahead) * m.row, columns);
        read(m.type, m.base, first + i * m.row, columns, to + i * to_row);
        std::fill(to + i * to_row + columns, to + i * to_row + padded_columns, 0.0f);
    }
    for (int64_t i = rows; i < padded_rows; ++i) std::fill_n(to + i * to_row, padded_columns, 0.0f);
}

void pack_transposed(const Matrix &m, int64_t i0, int64_t rows, int64_t padded_rows, int64_t j0, int64_t columns,
                     int64_t padded_columns, float *to, int64_t to_row) {
    const int64_t first = m.offset + i0 * m.row + j0;
    if (m.type == DType::f32) {
        const float *from = static_cast<const float *>(m.base) + first;
        HWY_DYNAMIC_DISPATCH(transpose_f32)(from, m.row, rows, columns, to, to_row);
    } else {
        const bf16 *from = static_cast<const bf16 *>(m.base) + first;
        HWY_DYNAMIC_DISPATCH(transpose_bf16)(from, m.row, rows, columns, to, to_row);
    }
    for (int64_t j = 0; j < columns; ++j) std::fill(to + j * to_row + rows, to + j * to_row + padded_rows, 0.0f);
    for (int64_t j = columns; j < padded_columns; ++j) std::fill_n(to + j * to_row, padded_rows, 0.0f);
}

}  // namespace mdlm::cpu
#endif

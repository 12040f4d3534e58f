/* SPDX-License-Identifier: Apache-2.0 */
/* The output head's matmul: every line of c is a sum of lines of b, four at a time. The innermost loop runs along lines
   and reorders no sum, so that compilers vectorise it without -ffast-math. */
#include "matmul.h"

void matmul(float *restrict c, const float *restrict a, const float *restrict b, size_t rows, size_t inner,
            size_t columns) {
    for (size_t i = 0; i < rows; i++) {
        float *restrict to = c + i * columns;
        const float *restrict factor = a + i * inner;
        for (size_t j = 0; j < columns; j++) to[j] = 0.0f;
        size_t k = 0;
        for (; k + 4 <= inner; k += 4) {
            const float *restrict b0 = b + k * columns, *restrict b1 = b0 + columns;
            const float *restrict b2 = b1 + columns, *restrict b3 = b2 + columns;
            float f0 = factor[k], f1 = factor[k + 1], f2 = factor[k + 2], f3 = factor[k + 3];
            for (size_t j = 0; j < columns; j++) to[j] += f0 * b0[j] + f1 * b1[j] + f2 * b2[j] + f3 * b3[j];
        }
        for (; k < inner; k++) {
            for (size_t j = 0; j < columns; j++) to[j] += factor[k] * b[k * columns + j];
        }
    }
}

void transpose(float *restrict to, const float *restrict from, size_t rows, size_t columns) {
    for (size_t i = 0; i < rows; i++) {
        for (size_t j = 0; j < columns; j++) to[j * rows + i] = from[i * columns + j];
    }
}

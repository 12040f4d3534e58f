/* SPDX-License-Identifier: Apache-2.0 */
#ifndef MATMUL_H
#define MATMUL_H

#include <stddef.h>

/* c[rows, columns] = a[rows, inner] b[inner, columns], row-major. */
void matmul(float *restrict c, const float *restrict a, const float *restrict b, size_t rows, size_t inner,
            size_t columns);
/* to[columns, rows] = transpose of from[rows, columns] */
void transpose(float *restrict to, const float *restrict from, size_t rows, size_t columns);

#endif

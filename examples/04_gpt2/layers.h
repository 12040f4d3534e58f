/* SPDX-License-Identifier: Apache-2.0 */
/* What stands around the block, in plain loops that one thread runs: embedding, final LayerNorm, head with the
   embedding's weights, loss. */
#ifndef LAYERS_H
#define LAYERS_H

#include <stddef.h>

/* to[columns, rows] = transpose of from[rows, columns] */
void transpose(float *restrict to, const float *restrict from, size_t rows, size_t columns);
/* c[rows, columns] += a[rows, inner] b[inner, columns], row-major. */
void matmul_add(float *restrict c, const float *restrict a, const float *restrict b, size_t rows, size_t inner,
                size_t columns);

/* y = LayerNorm(x) over rows of width; statistics[rows, 2] = mean, 1 / deviation. */
void layernorm(float *y, float *statistics, const float *x, const float *weight, const float *bias, size_t rows,
               size_t width);
/* dx is assigned (it may be dy), dweight and dbias are added. */
void layernorm_backward(float *dx, float *dweight, float *dbias, const float *dy, const float *x, const float *weight,
                        const float *statistics, size_t rows, size_t width);

/* Sum of cross-entropies of rows of logits; each row becomes the gradient of its own, times scale. */
double cross_entropy(float *logits, const unsigned char *targets, size_t rows, size_t width, float scale);

#endif

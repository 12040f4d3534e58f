/* SPDX-License-Identifier: Apache-2.0 */
#include "layers.h"

#include <math.h>

void transpose(float *restrict to, const float *restrict from, size_t rows, size_t columns) {
    for (size_t i = 0; i < rows; i++) {
        for (size_t j = 0; j < columns; j++) to[j * rows + i] = from[i * columns + j];
    }
}

/* Every line of c is a sum of lines of b, four at a time. The innermost loop runs along lines and reorders no sum, so
   that compilers vectorise it without -ffast-math. */
void matmul_add(float *restrict c, const float *restrict a, const float *restrict b, size_t rows, size_t inner,
                size_t columns) {
    for (size_t i = 0; i < rows; i++) {
        float *restrict to = c + i * columns;
        const float *restrict factor = a + i * inner;
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

void layernorm(float *y, float *statistics, const float *x, const float *weight, const float *bias, size_t rows,
               size_t width) {
    for (size_t i = 0; i < rows; i++, x += width, y += width) {
        double mean = 0.0, variance = 0.0;
        for (size_t k = 0; k < width; k++) mean += x[k];
        mean /= (double)width;
        for (size_t k = 0; k < width; k++) variance += (x[k] - mean) * (x[k] - mean);
        float middle = (float)mean, scale = (float)(1.0 / sqrt(variance / (double)width + 1e-5));
        for (size_t k = 0; k < width; k++) y[k] = (x[k] - middle) * scale * weight[k] + bias[k];
        statistics[2 * i] = middle;
        statistics[2 * i + 1] = scale;
    }
}

void layernorm_backward(float *dx, float *dweight, float *dbias, const float *dy, const float *x, const float *weight,
                        const float *statistics, size_t rows, size_t width) {
    for (size_t i = 0; i < rows; i++, x += width, dy += width, dx += width) {
        const float middle = statistics[2 * i], scale = statistics[2 * i + 1];
        double sum = 0.0, along = 0.0;
        for (size_t k = 0; k < width; k++) {
            float normal = (x[k] - middle) * scale, g = dy[k] * weight[k];
            dweight[k] += dy[k] * normal;
            dbias[k] += dy[k];
            sum += g;
            along += g * normal;
        }
        float mean = (float)(sum / (double)width), share = (float)(along / (double)width);
        for (size_t k = 0; k < width; k++) dx[k] = scale * (dy[k] * weight[k] - mean - (x[k] - middle) * scale * share);
    }
}

double cross_entropy(float *logits, const unsigned char *targets, size_t rows, size_t width, float scale) {
    double loss = 0.0;
    for (size_t i = 0; i < rows; i++, logits += width) {
        float largest = logits[0], of_target = logits[targets[i]];
        for (size_t c = 1; c < width; c++) largest = logits[c] > largest ? logits[c] : largest;
        double sum = 0.0;
        for (size_t c = 0; c < width; c++) sum += logits[c] = expf(logits[c] - largest);
        loss += log(sum) - (double)(of_target - largest);
        float part = scale / (float)sum;
        for (size_t c = 0; c < width; c++) logits[c] *= part;
        logits[targets[i]] -= scale;
    }
    return loss;
}

/* SPDX-License-Identifier: Apache-2.0 */
#include "adamw.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

static const double beta1 = 0.9, beta2 = 0.99, epsilon = 1e-8, weight_decay = 0.05, largest_norm = 1.0;

static void load(float *to, const parameter *p) {
    if (p->dtype == MDLM_DTYPE_F32) {
        memcpy(to, p->stored, p->count * sizeof(float));
    } else {
        for (size_t i = 0; i < p->count; i++) to[i] = bf16_to_float(((const uint16_t *)p->stored)[i]);
    }
}

static void store(const parameter *p, const float *from) {
    if (p->dtype == MDLM_DTYPE_F32) {
        memcpy(p->stored, from, p->count * sizeof(float));
    } else {
        for (size_t i = 0; i < p->count; i++) ((uint16_t *)p->stored)[i] = float_to_bf16(from[i]);
    }
}

void adamw_create(adamw *a, const model *m) {
    memset(a, 0, sizeof *a);
    a->self = m->self;
    a->parameters = m->parameters;
    a->parameter_count = m->parameter_count;
    size_t size = model_size(m), offset = 0;
    a->value = allocate(size, sizeof(float));
    a->mean = allocate(size, sizeof(float));
    a->square = allocate(size, sizeof(float));
    for (size_t i = 0; i < a->parameter_count; i++) {
        load(a->value + offset, &a->parameters[i]);
        offset += a->parameters[i].count;
    }
}

void adamw_destroy(adamw *a) {
    free(a->value);
    free(a->mean);
    free(a->square);
    memset(a, 0, sizeof *a);
}

/* Over all ranks: what is split is the sum of the ranks' parts, what all have counts once. */
static double norm_of_gradients(const adamw *a) {
    double split = 0.0, same = 0.0;
    for (size_t i = 0; i < a->parameter_count; i++) {
        const parameter *p = &a->parameters[i];
        double sum = 0.0;
        for (size_t k = 0; k < p->count; k++) sum += (double)p->grad[k] * p->grad[k];
        *(p->split ? &split : &same) += sum;
    }
    if (a->self->size > 1)
        CHECK(mdlm_comm_all_reduce(a->self->comm, &split, &split, 1, MDLM_DTYPE_F64, MDLM_REDUCE_SUM, 0));
    return sqrt(split + same);
}

void adamw_step(adamw *a, double learning_rate) {
    a->step++;
    double norm = norm_of_gradients(a);
    const float clip = norm > largest_norm ? (float)(largest_norm / norm) : 1.0f;
    const float of_mean = (float)(learning_rate / (1.0 - pow(beta1, a->step)));
    const float of_square = (float)(1.0 / (1.0 - pow(beta2, a->step)));
    const float b1 = (float)beta1, b2 = (float)beta2, tiny = (float)epsilon;
    size_t offset = 0;
    for (size_t i = 0; i < a->parameter_count; i++) {
        const parameter *p = &a->parameters[i];
        const float keep = p->decays ? (float)(1.0 - learning_rate * weight_decay) : 1.0f;
        float *value = a->value + offset, *mean = a->mean + offset, *square = a->square + offset;
        for (size_t k = 0; k < p->count; k++) {
            float grad = clip * p->grad[k];
            mean[k] = b1 * mean[k] + (1.0f - b1) * grad;
            square[k] = b2 * square[k] + (1.0f - b2) * grad * grad;
            value[k] = keep * value[k] - of_mean * mean[k] / (sqrtf(of_square * square[k]) + tiny);
        }
        store(p, value);
        offset += p->count;
    }
}

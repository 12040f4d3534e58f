/* SPDX-License-Identifier: Apache-2.0 */
#include "adamw.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

static const double beta1 = 0.9, beta2 = 0.95, epsilon = 1e-8, weight_decay = 0.1, largest_norm = 1.0;

void adamw_create(adamw *a, const model *m) {
    a->mean = allocate(m->size, sizeof(float));
    a->square = allocate(m->size, sizeof(float));
    a->step = 0;
}

void adamw_destroy(adamw *a) {
    free(a->mean);
    free(a->square);
    memset(a, 0, sizeof *a);
}

double adamw_step(adamw *a, model *m, double learning_rate) {
    a->step++;
    double norm = 0.0;
    for (size_t i = 0; i < m->size; i++) norm += (double)m->grads[i] * m->grads[i]; /* padding is 0 */
    norm = sqrt(norm);
    const float clip = norm > largest_norm ? (float)(largest_norm / norm) : 1.0f;
    const float of_mean = (float)(learning_rate / (1.0 - pow(beta1, (double)a->step)));
    const float of_square = (float)(1.0 / (1.0 - pow(beta2, (double)a->step)));
    const float b1 = (float)beta1, b2 = (float)beta2, tiny = (float)epsilon;
    for (size_t t = 0; t < m->tensor_count; t++) {
        const tensor *p = &m->tensors[t];
        const float keep = p->decays ? (float)(1.0 - learning_rate * weight_decay) : 1.0f;
        for (size_t i = p->offset; i < p->offset + p->count; i++) {
            float grad = clip * m->grads[i];
            a->mean[i] = b1 * a->mean[i] + (1.0f - b1) * grad;
            a->square[i] = b2 * a->square[i] + (1.0f - b2) * grad * grad;
            m->params[i] = keep * m->params[i] - of_mean * a->mean[i] / (sqrtf(of_square * a->square[i]) + tiny);
        }
    }
    CHECK(mdlm_params_changed(m->block)); /* they were written behind the library's back */
    return norm;
}

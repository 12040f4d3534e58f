/* SPDX-License-Identifier: Apache-2.0 */
/* AdamW over the flat arrays, after clipping by the global norm. */
#ifndef ADAMW_H
#define ADAMW_H

#include "model.h"

typedef struct adamw {
    float *mean, *square; /* of the gradients, flat as the model's params */
    int64_t step;
} adamw;

void adamw_create(adamw *a, const model *m);
void adamw_destroy(adamw *a);
/* Scales all gradients down to a norm of at most 1 together and moves the parameters; returns the norm that they had.
 */
double adamw_step(adamw *a, model *m, double learning_rate);

#endif

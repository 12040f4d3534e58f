/* SPDX-License-Identifier: Apache-2.0 */
/* AdamW over a list of arrays, in float32. */
#ifndef ADAMW_H
#define ADAMW_H

#include "model.h"

typedef struct adamw {
    const rank *self;
    const parameter *parameters; /* the model's */
    size_t parameter_count;
    float *value;  /* one flat array each: the parameters in float32, which bf16 ones are rounded from; */
    float *mean;   /* the running mean of the gradients */
    float *square; /* and of their squares */
    int step;
} adamw;

void adamw_create(adamw *a, const model *m);
void adamw_destroy(adamw *a);
/* Scales the gradients down to a norm of at most 1, moves the parameters and writes them where the model reads them. */
void adamw_step(adamw *a, double learning_rate);

#endif

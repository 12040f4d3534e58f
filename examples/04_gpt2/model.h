/* SPDX-License-Identifier: Apache-2.0 */
/* GPT-2 on bytes: what is around its layers is here, the layers are a block of libmdlm. All parameters are this
   program's memory. */
#ifndef MODEL_H
#define MODEL_H

#include "text.h"

enum {
    SEQ = 64,
    COUNT = 8,
    MICRO_BATCHES = 2
}; /* tokens of a sequence, sequences of a micro-batch, micro-batches of a step */

/* Settings that must not change what is learnt: how much is kept for backward, and the threads. */
typedef struct way {
    const char *name;
    const char *granularity; /* recompute_granularity */
    int threads;             /* 0 = OpenMP's own number */
} way;

/* One parameter, in each of the flat arrays: the model's params and grads, the optimizer's moments. */
typedef struct tensor {
    const char *name;
    size_t offset, count;
    int decays; /* matrices do; biases, norms and positions do not */
} tensor;

typedef struct model {
    mdlm_context *context;
    mdlm_block *block;
    mdlm_tape *tape;
    size_t hidden;

    tensor *tensors;
    size_t tensor_count, size;               /* size = floats of a flat array, padding included */
    float *params, *grads;                   /* flat */
    size_t wte, wpe, norm_weight, norm_bias; /* offsets of what is outside the block */

    float *x, *y, *dy, *dx;       /* [s, b, h], of the block */
    float *features, *statistics; /* after the final norm; of its rows */
    float *logits, *turned;
    unsigned char *input, *target; /* of a micro-batch, token by token as in [s, b] */
} model;

void model_create(model *m, const way *how, uint64_t seed);
void model_destroy(model *m);

/* Gradients of a step, over all of its micro-batches; returns the mean loss. Draws its text from generator, and its
   dropout from seed and step. */
double model_gradients(model *m, const corpus *text, rng *generator, uint64_t seed, uint32_t step);
/* Mean loss on the given number of held-out windows, a multiple of COUNT; without dropout. */
double model_evaluate(model *m, const corpus *text, size_t windows);
/* Logits of the byte behind the last of `length` bytes, at most SEQ. */
const float *model_next(model *m, const unsigned char *bytes, size_t length);

#endif

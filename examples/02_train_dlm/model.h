/* SPDX-License-Identifier: Apache-2.0 */
/* The language model: byte embedding, libmdlm's block, output head. The block is the library's; the rest is ours. */
#ifndef MODEL_H
#define MODEL_H

#include "group.h"
#include "loss.h"

enum { MAX_SETTINGS = 8 };

typedef struct setting {
    const char *key;
    const char *value;
} setting;

/* One array that the optimizer moves. */
typedef struct parameter {
    void *stored; /* where the model reads it, in dtype */
    const float *grad;
    mdlm_dtype dtype; /* F32 or BF16 */
    size_t count;
    int decays; /* weight decay is for matrices */
    int split;  /* each rank has a part of it; else all ranks have the same */
} parameter;

typedef struct model {
    mdlm_context *context;
    mdlm_block *block;
    mdlm_tape *tape;
    const rank *self;
    size_t hidden, max_seq, max_count;
    mdlm_dtype dtype;
    float *embedding, *embedding_grad; /* [INPUTS, hidden] */
    float *head, *head_grad;           /* [hidden, BYTES] */
    parameter *parameters;             /* ours first, then the block's */
    size_t parameter_count;
    void *x, *y, *dy,
        *dx;    /* the block's input, output and their gradients, in dtype; [s, b, hidden], on every rank all of it */
    void *part; /* the block's output, or the gradient of its input, for this rank's part of the sequence */
    float *features; /* the block's output where a byte is masked: [masked, hidden] */
    float *logits;   /* [masked, BYTES], then their gradient */
    float *turned;   /* a transposed matrix */
} model;

/* self stays where it is as long as the model lives. settings: more of the block's, on top of those of the
 * architecture; ended by a NULL key. */
void model_create(model *m, const rank *self, int threads, const char *dtype, size_t seq, size_t count,
                  const setting *settings, uint64_t seed);
void model_destroy(model *m);
size_t model_size(const model *m); /* number of parameters on this rank */
/* Of all parameters in full, the same on all ranks, which call it together. size (NULL allowed) gets their number. */
uint64_t model_hash(const model *m, size_t *size);

/* Loss and gradients of one step. stats (NULL allowed) gets what the tape held between forward and backward. */
double model_gradients(model *m, const sample *s, uint64_t seed, uint32_t step, mdlm_tape_stats *stats);
/* Logits of the masked elements, without dropout and without a tape: m->logits, [masked, BYTES]. */
float *model_predict(model *m, const sample *s);

#endif

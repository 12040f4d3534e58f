/* SPDX-License-Identifier: Apache-2.0 */
/* One training run: a model, its optimizer, its samples. */
#ifndef TRAIN_H
#define TRAIN_H

#include "adamw.h"

enum {
    SEQ = 64,
    COUNT = 16,
    EVALUATIONS = 16
}; /* tokens of a sequence, sequences of a step, samples of an evaluation */

typedef struct trainer {
    model model;
    adamw optimizer;
    const corpus *text;
    sample sample;
    uint64_t seed;
    rng generator;
    int steps, step;
} trainer;

/* self stays where it is as long as the trainer lives. Every rank has a whole trainer and does the same with it. */
void trainer_create(trainer *t, const rank *self, const corpus *text, int threads, const char *dtype,
                    const setting *settings, uint64_t seed, int steps);
void trainer_destroy(trainer *t);

/* One step; returns its loss. */
double trainer_step(trainer *t, mdlm_tape_stats *stats);
/* Mean loss over held-out samples, the same with the same masks whenever it is asked. */
double trainer_evaluate(trainer *t);
/* The baseline's, on those samples and masks. */
double trainer_baseline(trainer *t, const baseline *b);

#endif

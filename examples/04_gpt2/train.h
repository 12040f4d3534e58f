/* SPDX-License-Identifier: Apache-2.0 */
/* One run: a model, its optimizer, its random numbers. */
#ifndef TRAIN_H
#define TRAIN_H

#include "checkpoint.h"

typedef struct trainer {
    model model;
    adamw optimizer;
    const corpus *text;
    uint64_t seed;
    rng generator;
    int steps;   /* that the learning rate is made for */
    double norm; /* of the last step's gradients */
} trainer;

void trainer_create(trainer *t, const way *how, const corpus *text, uint64_t seed, int steps);
void trainer_destroy(trainer *t);
/* One step; returns its loss. */
double trainer_step(trainer *t);

/* Writes length bytes behind prompt_length bytes of prompt, drawn with a temperature of 0.7. */
void trainer_sample(trainer *t, unsigned char *to, size_t length, const unsigned char *prompt, size_t prompt_length);

#endif

/* SPDX-License-Identifier: Apache-2.0 */
/* A run in a file. */
#ifndef CHECKPOINT_H
#define CHECKPOINT_H

#include "adamw.h"

/* Everything that the next step depends on: parameters and moments by name, the step, the random numbers. Nothing of
   plans or threads. */
void checkpoint_save(const char *path, const model *m, const adamw *a, const rng *generator);
/* Into a model and an optimizer that were created alike. */
void checkpoint_load(const char *path, model *m, adamw *a, rng *generator);

#endif

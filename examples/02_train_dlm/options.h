/* SPDX-License-Identifier: Apache-2.0 */
#ifndef OPTIONS_H
#define OPTIONS_H

#include <stdint.h>

typedef struct options {
    const char *text;  /* NULL = licence texts */
    const char *dtype; /* "f32" or "bf16" */
    const char *out;   /* folder for loss.svg */
    int steps;         /* of the long run; 0 = none */
    int compare_steps; /* of each short run; 0 = none */
    int threads;       /* of each rank; 0 = its share of the cores */
    int ranks;         /* --tensor-model-parallel-size, or the processes that a launcher started */
    int sequence_parallel;
    uint64_t seed;
} options;

/* Exits with 2 and one line when an argument is wrong, with 0 after --help. */
options options_read(int argc, char **argv);

#endif

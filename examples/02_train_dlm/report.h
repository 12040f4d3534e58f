/* SPDX-License-Identifier: Apache-2.0 */
/* What the user sees: progress, the table of settings, the picture of the loss. */
#ifndef REPORT_H
#define REPORT_H

#include <mdlm/mdlm.h>
#include <stddef.h>

typedef struct result {
    const char *name;
    mdlm_tape_stats stats;
    mdlm_memory memory;
    double seconds_per_step;
    double loss;
    uint64_t hash;
} result;

void report_table(const result *results, size_t count);
/* 1 when loss and parameters are the same, to the last bit, in every row. */
int report_same(const result *results, size_t count);

/* One line that overwrites itself, on a terminal only. */
void report_progress(const char *name, int step, int steps, double loss);
void report_progress_end(void);

typedef struct curve {
    size_t count;
    int *step;
    double *loss;
} curve;

/* Writes "step,training loss,held-out loss", empty where there is none of one kind; 0 when the file cannot be written.
 */
int report_csv(const char *path, const curve *training, const curve *held_out);
/* Writes an SVG of training and held-out loss with the baseline as a line; 0 when the file cannot be written. */
int report_svg(const char *path, const curve *training, const curve *held_out, double baseline);

#endif

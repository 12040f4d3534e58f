/* SPDX-License-Identifier: Apache-2.0 */
/* The same small step, whatever connects the ranks. */
#ifndef STEP_H
#define STEP_H

#include <mdlm/mdlm.h>

typedef struct step_options {
    int sequence_parallel;
    int64_t timeout_ms;            /* how long a rank waits for the others; 0 = the library's default */
    void (*before_backward)(void); /* NULL = nothing: called on this rank between forward and backward */
} step_options;

typedef struct step_result {
    double output; /* root of the mean square of y; the next two of dx and of all gradients of parameters */
    double grad_input;
    double grad;
} step_result;

/* One forward and one backward as a rank of comm's group; comm NULL = alone. Every rank gets the same result. Returns
   the status of the call that failed, whose line mdlm_last_error() then has. */
mdlm_status step_run(mdlm_comm *comm, const step_options *options, step_result *result);

/* Prints a line; 1 when the step went well and its result is that of one rank within rounding. */
int step_report(const char *name, mdlm_status status, const step_result *seen, const step_result *one_rank);

#endif

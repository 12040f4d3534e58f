/* SPDX-License-Identifier: Apache-2.0 */
/* Two ways to run a step on several ranks. Both return the status of rank 0, or that of another rank where rank 0 went
 * well. */
#ifndef RANKS_H
#define RANKS_H

#include "step.h"

/* Ranks are threads, with the library's communicator for threads. */
mdlm_status run_threads(int size, const step_options *options, step_result *result);

/* Ranks are processes: rank 0 this one, the others forked, each connected with each by a pair of sockets.
   before_backward is called on the last rank alone. Call it while this process has no other threads. */
mdlm_status run_processes(int size, const step_options *options, step_result *result);

#endif

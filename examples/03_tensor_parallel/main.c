/* SPDX-License-Identifier: Apache-2.0 */
/* One step of a block whose layers are split over ranks, which are connected in ways that a trainer may have already.
 * README.md says more. */
#define _POSIX_C_SOURCE 200809L
#include "ranks.h"

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

static void die_at_once(void) { raise(SIGKILL); }

static void stay_away(void) { sleep(2); }

/* What the others see of a rank that fails: an error, in time. */
static int show_failure(const char *name, void (*fail)(void), int64_t timeout_ms) {
    const step_options options = {0, timeout_ms, fail};
    step_result result;
    const mdlm_status status = run_processes(2, &options, &result);
    printf("%-36s rank 0 gets %s: %s\n", name, mdlm_status_name(status), mdlm_last_error());
    return status == MDLM_ERROR_COMM;
}

int main(void) {
    const step_options whole = {0, 60000, NULL}, parts = {1, 60000, NULL};
    step_result one, seen;
    mdlm_status status = step_run(NULL, &whole, &one);
    int good = step_report("one rank", status, &one, &one);
    if (!good) return EXIT_FAILURE;

    /* Processes first: where there are no threads yet, fork is safe. */
    status = run_processes(2, &whole, &seen);
    good &= step_report("2 processes over sockets", status, &seen, &one);
    status = run_processes(4, &parts, &seen);
    good &= step_report("4 processes, sequence parallel", status, &seen, &one);
    status = run_threads(2, &whole, &seen);
    good &= step_report("2 threads", status, &seen, &one);
    status = run_threads(4, &parts, &seen);
    good &= step_report("4 threads, sequence parallel", status, &seen, &one);
    puts(good ? "The same digits, whatever connects the ranks." : "THEY DIFFER.");

    good &= show_failure("rank 1 of 2 is killed:", die_at_once, 60000);
    good &= show_failure("rank 1 of 2 is silent for 2 s:", stay_away, 500);
    return good ? EXIT_SUCCESS : EXIT_FAILURE;
}

/* SPDX-License-Identifier: Apache-2.0 */
#define _POSIX_C_SOURCE 200809L
#include "ranks.h"

#include "sockets.h"

#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

typedef struct rank_thread {
    pthread_t handle;
    mdlm_comm *comm;
    const step_options *options;
    step_result result;
    mdlm_status status;
    char line[512]; /* mdlm_last_error is the thread's */
} rank_thread;

static void *run_rank(void *argument) {
    rank_thread *t = argument;
    t->status = step_run(t->comm, t->options, &t->result);
    if (t->status != MDLM_OK) {
        snprintf(t->line, sizeof t->line, "%s", mdlm_last_error());
        mdlm_comm_abort(t->comm); /* or the others would wait for this rank until their time is over */
    }
    return NULL;
}

mdlm_status run_threads(int size, const step_options *options, step_result *result) {
    mdlm_comm *comms[MOST_RANKS];
    rank_thread ranks[MOST_RANKS];
    mdlm_status status = mdlm_comm_create_threads(size, comms);
    if (status != MDLM_OK) return status;
    int begun = 0;
    for (; begun < size; begun++) {
        ranks[begun] = (rank_thread){.comm = comms[begun], .options = options};
        if (pthread_create(&ranks[begun].handle, NULL, run_rank, &ranks[begun]) != 0) break;
    }
    if (begun < size) {
        mdlm_comm_abort(comms[0]);
        mdlm_set_last_error("a thread could not be made");
        status = MDLM_ERROR_THREAD;
    }
    for (int r = 0; r < begun; r++) {
        pthread_join(ranks[r].handle, NULL);
        if (status == MDLM_OK && ranks[r].status != MDLM_OK) {
            status = ranks[r].status;
            mdlm_set_last_error(ranks[r].line);
        }
    }
    *result = ranks[0].result;
    for (int r = 0; r < size; r++) mdlm_comm_destroy(comms[r]);
    return status;
}

static mdlm_status run_process(int rank, int size, const int *sockets, const step_options *options,
                               step_result *result) {
    mdlm_comm *comm = NULL;
    mdlm_status status = sockets_comm(rank, size, sockets, &comm);
    if (status != MDLM_OK) return status;
    step_options mine = *options;
    if (rank != size - 1) mine.before_backward = NULL;
    status = step_run(comm, &mine, result);
    mdlm_comm_destroy(comm);
    return status;
}

mdlm_status run_processes(int size, const step_options *options, step_result *result) {
    int ends[MOST_RANKS][MOST_RANKS]; /* ends[r][q]: rank r's, connected with rank q's */
    pid_t children[MOST_RANKS];
    for (int r = 0; r < size; r++) {
        ends[r][r] = -1;
        for (int q = 0; q < r; q++) {
            int pair[2];
            if (socketpair(AF_UNIX, SOCK_STREAM, 0, pair) != 0) { /* the process ends soon, and its sockets with it */
                mdlm_set_last_error("a pair of sockets could not be made");
                return MDLM_ERROR_COMM;
            }
            ends[r][q] = pair[0];
            ends[q][r] = pair[1];
        }
    }
    fflush(NULL); /* or children would write it again */
    for (int r = 1; r < size; r++) {
        children[r] = fork();
        if (children[r] < 0) {
            mdlm_set_last_error("a process could not be made");
            while (--r > 0) kill(children[r], SIGKILL), waitpid(children[r], NULL, 0);
            return MDLM_ERROR_COMM;
        }
        if (children[r] > 0) continue;
        /* Other ranks' ends are closed here: a rank that is gone is seen because nobody holds its end. */
        for (int q = 0; q < size; q++)
            for (int p = 0; p < size; p++)
                if (q != r && q != p) close(ends[q][p]);
        const mdlm_status status = run_process(r, size, ends[r], options, result);
        if (status != MDLM_OK && options->before_backward == NULL)
            fprintf(stderr, "rank %d: %s\n", r, mdlm_last_error());
        _exit(status == MDLM_OK ? 0 : 1);
    }
    for (int q = 1; q < size; q++)
        for (int p = 0; p < size; p++)
            if (q != p) close(ends[q][p]);
    mdlm_status status = run_process(0, size, ends[0], options, result);
    for (int r = 1; r < size; r++) {
        int ended = 0;
        waitpid(children[r], &ended, 0);
        if (status == MDLM_OK && !(WIFEXITED(ended) && WEXITSTATUS(ended) == 0)) {
            mdlm_set_last_error("another rank failed");
            status = MDLM_ERROR_COMM;
        }
    }
    return status;
}

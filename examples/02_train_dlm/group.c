/* SPDX-License-Identifier: Apache-2.0 */
#define _POSIX_C_SOURCE 200809L
#include "group.h"

#include "util.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static int number_in(const char *name) {
    const char *text = getenv(name);
    char *end = NULL;
    long value = text != NULL ? strtol(text, &end, 10) : -1;
    return text != NULL && end != text && *end == '\0' && value >= 0 && value < 65536 ? (int)value : -1;
}

int group_processes(int *number) {
    static const char *const names[][2] = {{"OMPI_COMM_WORLD_SIZE", "OMPI_COMM_WORLD_RANK"}, {"PMI_SIZE", "PMI_RANK"}};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        int size = number_in(names[i][0]), rank = number_in(names[i][1]);
        if (size > 1 && rank >= 0 && rank < size) {
            *number = rank;
            return size;
        }
    }
    *number = 0;
    return 1;
}

int group_threads(int size) {
    if (size == 1) return 0;
    long cores = sysconf(_SC_NPROCESSORS_ONLN);
    return cores > size ? (int)(cores / size) : 1;
}

typedef struct thread {
    pthread_t handle;
    rank self;
    int (*body)(const rank *self, void *payload);
    void *payload;
    int good;
} thread;

static void *run_thread(void *argument) {
    thread *t = argument;
    t->good = t->body(&t->self, t->payload);
    return NULL;
}

int group_run(int size, int sequence_parallel, int (*body)(const rank *self, void *payload), void *payload) {
    rank self = {0, size, sequence_parallel, NULL};
    int number = 0;
    if (group_processes(&number) > 1) {
        self.number = number;
        self.comm = group_mpi_begin(size, number);
        int good = body(&self, payload);
        group_mpi_end(self.comm);
        return good;
    }
    if (size == 1) return body(&self, payload);

    mdlm_comm **comms = allocate((size_t)size, sizeof(mdlm_comm *));
    thread *threads = allocate((size_t)size, sizeof *threads);
    CHECK(mdlm_comm_create_threads(size, comms));
    for (int r = 0; r < size; r++) {
        threads[r].self = (rank){r, size, sequence_parallel, comms[r]};
        threads[r].body = body;
        threads[r].payload = payload;
        if (pthread_create(&threads[r].handle, NULL, run_thread, &threads[r]) != 0)
            die(EXIT_FAILED, "a thread for rank %d cannot be made", r);
    }
    int good = 1;
    for (int r = 0; r < size; r++) {
        pthread_join(threads[r].handle, NULL);
        good &= threads[r].good;
    }
    for (int r = 0; r < size; r++) mdlm_comm_destroy(comms[r]);
    free(threads);
    free(comms);
    return good;
}

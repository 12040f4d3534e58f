/* SPDX-License-Identifier: Apache-2.0 */
/* The ranks of a run: threads of this program, or the processes that mpirun started. */
#ifndef GROUP_H
#define GROUP_H

#include <mdlm/mdlm.h>

typedef struct rank {
    int number, size;
    int sequence_parallel; /* the block's x, y, dx and dy are this rank's part of the sequence */
    mdlm_comm *comm;       /* NULL with size 1 */
} rank;

/* Processes that a launcher started together, and which of them this one is; 1 and 0 without a launcher. */
int group_processes(int *number);
/* Runs body on every rank at once: with a launcher on this process's, which must be one of size. Returns 1 if it
   returned 1 on all of them that are here. */
int group_run(int size, int sequence_parallel, int (*body)(const rank *self, void *payload), void *payload);
/* Threads for each rank's pool: its share of the cores, at least 1. 0 = all of them, for a single rank. */
int group_threads(int size);

/* group_mpi.c, or group_no_mpi.c where the build has no MPI: begins MPI and gives a communicator of all processes; ends
 * both. */
mdlm_comm *group_mpi_begin(int size, int number);
void group_mpi_end(mdlm_comm *comm);

#endif

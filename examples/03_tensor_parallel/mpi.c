/* SPDX-License-Identifier: Apache-2.0 */
/* The same step on the processes that mpirun has started: mpirun -n 2 03_tensor_parallel_mpi */
#include "step.h"

#include <mdlm/mpi.h>
#include <stdio.h>
#include <stdlib.h>

int main(int argc, char **argv) {
    int level = 0, rank = 0, size = 0, good = 1;
    mdlm_comm *comm = NULL;
    MPI_Init_thread(&argc, &argv, MPI_THREAD_FUNNELED, &level); /* the library's own threads never call MPI */
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &size);

    step_options options = {0, 60000, NULL};
    step_result one, seen;
    mdlm_status status = step_run(NULL, &options, &one); /* each process alone */
    if (rank == 0) good &= step_report("one rank", status, &one, &one);
    if (status == MDLM_OK) status = mdlm_comm_create_mpi(MPI_COMM_WORLD, &comm);
    for (; status == MDLM_OK && options.sequence_parallel < 2; options.sequence_parallel++) {
        char name[64];
        snprintf(name, sizeof name, "%d processes over MPI%s", size,
                 options.sequence_parallel ? ", seq. parallel" : "");
        status = step_run(comm, &options, &seen);
        if (rank == 0) good &= step_report(name, status, &seen, &one);
    }
    if (status != MDLM_OK) {
        fprintf(stderr, "rank %d: %s: %s\n", rank, mdlm_status_name(status), mdlm_last_error());
        MPI_Abort(MPI_COMM_WORLD, EXIT_FAILURE); /* the others may wait for this rank */
    }
    mdlm_comm_destroy(comm);
    MPI_Finalize();
    return good ? EXIT_SUCCESS : EXIT_FAILURE;
}

/* SPDX-License-Identifier: Apache-2.0 */
#include "group.h"

#include "util.h"

#include <mdlm/mpi.h>

mdlm_comm *group_mpi_begin(int size, int number) {
    int level = 0, seen_size = 0, seen_number = 0;
    mdlm_comm *comm = NULL;
    if (MPI_Init_thread(NULL, NULL, MPI_THREAD_FUNNELED, &level) != MPI_SUCCESS || level < MPI_THREAD_FUNNELED)
        die(EXIT_FAILED, "MPI does not come with MPI_THREAD_FUNNELED");
    MPI_Comm_size(MPI_COMM_WORLD, &seen_size);
    MPI_Comm_rank(MPI_COMM_WORLD, &seen_number);
    if (seen_size != size || seen_number != number)
        die(EXIT_FAILED, "MPI sees process %d of %d, the launcher said %d of %d", seen_number, seen_size, number, size);
    CHECK(mdlm_comm_create_mpi(MPI_COMM_WORLD, &comm));
    return comm;
}

void group_mpi_end(mdlm_comm *comm) {
    mdlm_comm_destroy(comm);
    MPI_Finalize();
}

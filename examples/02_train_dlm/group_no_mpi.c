/* SPDX-License-Identifier: Apache-2.0 */
#include "group.h"

#include "util.h"

mdlm_comm *group_mpi_begin(int size, int number) {
    (void)number;
    die(EXIT_USAGE, "a launcher started %d processes, and this program was built without MPI", size);
}

void group_mpi_end(mdlm_comm *comm) { mdlm_comm_destroy(comm); }

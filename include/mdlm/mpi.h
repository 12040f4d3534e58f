/* libmdlm: a communicator from an MPI communicator.                          SPDX-License-Identifier: Apache-2.0

In the library libmdlm-mpi (pkg-config: mdlm-mpi), which is built where MPI is found; libmdlm itself needs no MPI. Rules as in mdlm.h.
API version 3. */
#ifndef MDLM_MPI_H
#define MDLM_MPI_H

#include <mdlm/mdlm.h>
#include <mpi.h>

#ifdef __cplusplus
extern "C" {
#endif

/* A communicator over the processes of comm, an intracommunicator. Every process of comm calls it: it duplicates comm, so messages of yours on
   comm never meet the library's, and comm may be freed afterwards. MPI must be initialised (STATE), with at least MPI_THREAD_FUNNELED if a call
   can come from a program with threads; every call on a context with this communicator must then be made on the thread that may call MPI, as
   mdlm_comm_abort too. Collectives are MPI's non-blocking ones on buffers that the communicator owns, so that a call that ran out of time leaves
   MPI no pointer to your memory; sums are taken in rank order in float32 (float64 for F64). Its buffers are allocated here and by the first
   calls, and are not counted in mdlm_memory.
   Destroy it before MPI_Finalize, on all processes; a process that does so tells the others, whose later calls get COMM. After a timeout or an
   abort, requests that MPI has not finished are left to it with their buffers. COMM when MPI reports an error; whether MPI lets a process live
   on when another one dies is up to the launcher (Open MPI's mpirun ends the job). */
MDLM_API mdlm_status mdlm_comm_create_mpi(MPI_Comm comm, mdlm_comm **out);
/* The same from a Fortran handle (MPI_Comm_c2f; comm.py2f() of mpi4py): for languages that do not know MPI_Comm's type. */
MDLM_API mdlm_status mdlm_comm_create_mpi_f(int32_t comm, mdlm_comm **out);

#ifdef __cplusplus
}
#endif
#endif

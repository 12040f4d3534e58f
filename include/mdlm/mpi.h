/* libmdlm: a communicator from an MPI communicator.
   SPDX-License-Identifier: Apache-2.0

   In the library libmdlm-mpi (pkg-config: mdlm-mpi), which is built where MPI is found; libmdlm
   itself needs no MPI. Rules as in mdlm.h. */
#ifndef MDLM_MPI_H
#define MDLM_MPI_H

#include <mdlm/mdlm.h>
#include <mpi.h>

#ifdef __cplusplus
extern "C" {
#endif

/* A communicator over the processes of comm, an intracommunicator (ARGUMENT for another, or
   MPI_COMM_NULL). Every process of comm calls it, and it waits for all of them, without a timeout.
   It duplicates comm, so messages of yours on comm never meet the library's, and comm may be freed
   afterwards. STATE before MPI_Init and after MPI_Finalize, and on a thread that may not call MPI;
   MEMORY, and COMM on the other ranks.

   Threads: initialise MPI with at least MPI_THREAD_FUNNELED if the program, or a context of more
   than one thread, has threads; those of the library never call MPI. Below MPI_THREAD_SERIALIZED
   every call on a context with this communicator must be made on MPI's main thread (it fails with
   COMM elsewhere). mdlm_comm_abort and mdlm_comm_destroy may be called on any thread and never
   wait: on one that may not call MPI, the others hear of it when this rank is in, or next makes, a
   call on the communicator, or when it creates or destroys another one, or in MPI_Finalize.

   Collectives are made of non-blocking messages between buffers that the communicator owns, so that
   a call that ran out of time leaves MPI no pointer to your memory. The buffers are allocated here,
   at most about 32 MiB a rank in groups of up to 256, touched as messages need them, and not
   counted in mdlm_memory. Sums are taken in rank order in float32 (float64 for F64) and rounded
   once, so all ranks have the bits of a group of threads. The timeout is how long nothing comes
   from a rank that is waited for; a cancelled call ends its wait, and the group, sooner. When ranks
   make different calls, every rank gets COMM with both.

   Destroy it before MPI_Finalize, on all processes; a process that does so tells the others, and a
   call of theirs that it had not made gets COMM. One that is still there in MPI_Finalize leaves
   then. What MPI has not finished after a failure is kept until it has, with its buffers;
   MPI_Finalize waits up to two seconds for it. COMM when MPI reports an error; whether MPI lets a
   process live on when another one dies is up to the launcher (Open MPI's mpirun ends the job). */
MDLM_API mdlm_status mdlm_comm_create_mpi(MPI_Comm comm, mdlm_comm **out);
/* The same from a Fortran handle (MPI_Comm_c2f; comm.py2f() of mpi4py): for languages that do not
   know MPI_Comm's type. A handle that is none is not found out by every MPI. */
MDLM_API mdlm_status mdlm_comm_create_mpi_f(int32_t comm, mdlm_comm **out);

#ifdef __cplusplus
}
#endif
#endif

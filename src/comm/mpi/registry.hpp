// SPDX-License-Identifier: Apache-2.0
// All links of this process. A link is kept until MPI has finished with its buffers, which may be after its
// communicator was destroyed.
#pragma once
#include <memory>

#include "comm/mpi/link.hpp"

namespace mdlm {

// The pointer stays valid until retire.
Link *enroll(std::unique_ptr<Link> link);
// STATE in a child that fork made after MPI was in use: its connections are the parent's.
void refuse_child();
// From any thread; MPI is called where this one may.
void retire(Link *link) noexcept;
// Helps retired links along, and frees those that are finished.
void sweep() noexcept;
// Has MPI_Finalize call us first. Once.
void watch_finalize();

}  // namespace mdlm

// SPDX-License-Identifier: Apache-2.0
// The collectives of a link. Arguments as in mdlm_comm_table.
#pragma once
#include "comm/mpi/link.hpp"

namespace mdlm {

class Collectives {
public:
    explicit Collectives(Link &link) : link_(link), parts_(static_cast<size_t>(link.size())) {}
    Link &link() { return link_; }
    mdlm_status all_reduce(const void *send, void *recv, int64_t count, DType dtype, mdlm_reduce_op op,
                           int64_t timeout_ms) noexcept;
    mdlm_status all_gather(const void *send, void *recv, int64_t count, DType dtype, int64_t timeout_ms) noexcept;
    mdlm_status reduce_scatter(const void *send, void *recv, int64_t count, DType dtype, mdlm_reduce_op op,
                               int64_t timeout_ms) noexcept;

private:
    void reduce_in_one_step(const char *send, char *recv, int64_t count, DType dtype, mdlm_reduce_op op);
    void reduce_in_two_steps(const char *send, char *recv, int64_t count, DType dtype, mdlm_reduce_op op);
    void reduce(Tag stream, int64_t round, const char *own, int64_t count, DType dtype, mdlm_reduce_op op, void *to);

    Link &link_;
    std::vector<const void *> parts_;
};

}  // namespace mdlm

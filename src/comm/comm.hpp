// SPDX-License-Identifier: Apache-2.0
// One rank's end of a group. Implementations: a group of one, threads in one process, the caller's functions (MPI comes
// through those).
#pragma once
#include <atomic>
#include <cstdint>
#include <memory>
#include <mutex>
#include <vector>

#include "base/dtype.hpp"
#include "base/made_in.hpp"
#include "comm/timeout.hpp"

namespace mdlm {

// count = elements of the local part: all_reduce works on count, all_gather writes size() * count, reduce_scatter reads
// size() * count and writes count. send may be recv for all_reduce. Every rank gets the same bits.
//
// A collective that fails throws COMM and leaves the group aborted: ranks are no longer at the same place of their
// program, so none can go on.
class Comm {
public:
    virtual ~Comm() = default;
    Comm() = default;
    Comm(const Comm &) = delete;

    const MadeIn &made() const { return made_; }
    virtual int32_t rank() const = 0;
    virtual int32_t size() const = 0;
    // Which memory its buffers must be in. Where host and device are one, both are that one.
    virtual mdlm_memory_space memory_space() const { return MDLM_MEMORY_SPACE_HOST; }
    void all_reduce(const void *send, void *recv, int64_t count, DType dtype, mdlm_reduce_op op,
                    const Timeout &timeout);
    void all_gather(const void *send, void *recv, int64_t count, DType dtype, const Timeout &timeout);
    void reduce_scatter(const void *send, void *recv, int64_t count, DType dtype, mdlm_reduce_op op,
                        const Timeout &timeout);
    // Every rank's collectives fail from now on, running ones too, and those of the partner. From any thread.
    void abort() noexcept;
    // Two communicators of one rank that end together, so that nobody waits in the one for a rank that has ended the
    // other. Both of them say so, and both take it back (null) before either is gone.
    void set_partner(Comm *partner) noexcept;

    // A context acquires the communicator for as long as it lives. False: another has it.
    bool acquire() noexcept { return !in_use_.exchange(true); }
    void release() noexcept { in_use_ = false; }

protected:
    // They throw Error when it cannot be done, and then touch no buffer any more.
    virtual void run_all_reduce(const void *send, void *recv, int64_t count, DType dtype, mdlm_reduce_op op,
                                const Timeout &timeout) = 0;
    virtual void run_all_gather(const void *send, void *recv, int64_t count, DType dtype, const Timeout &timeout) = 0;
    virtual void run_reduce_scatter(const void *send, void *recv, int64_t count, DType dtype, mdlm_reduce_op op,
                                    const Timeout &timeout) = 0;
    virtual void run_abort() noexcept {}

private:
    template <class F>
    void run(const char *name, F &&f);
    const MadeIn made_;
    std::atomic<bool> in_use_{false}, busy_{false}, aborted_{false};
    std::mutex partner_mutex_;
    Comm *partner_ = nullptr;
};

std::shared_ptr<Comm> make_self_comm();
std::vector<std::shared_ptr<Comm>> make_thread_comms(int32_t size);
// A complete table, which is copied; its destroy is called by the destructor.
std::shared_ptr<Comm> make_table_comm(const mdlm_comm_table &table);
// For such a function while it waits: whether the call that it is made for has been cancelled.
bool asked_in_table() noexcept;

}  // namespace mdlm

// SPDX-License-Identifier: Apache-2.0
#include "comm/comm.hpp"

#include <cstring>

#include "base/status.hpp"

namespace mdlm {

template <class F>
void Comm::run(const char *name, F &&f) {
    if (aborted_)
        fail(MDLM_ERROR_COMM, "%s on rank %d of %d: the group was aborted: expected it to be destroyed", name, rank(),
             size());
    if (busy_.exchange(true))
        fail(MDLM_ERROR_BUSY, "%s on rank %d of %d: another collective on this communicator is running", name, rank(),
             size());
    try {
        f();
    } catch (...) {
        busy_ = false;
        abort();
        throw;
    }
    busy_ = false;
}

void Comm::all_reduce(const void *send, void *recv, int64_t count, DType dtype, mdlm_reduce_op op,
                      const Timeout &timeout) {
    run("all_reduce", [&] { run_all_reduce(send, recv, count, dtype, op, timeout); });
}

void Comm::all_gather(const void *send, void *recv, int64_t count, DType dtype, const Timeout &timeout) {
    run("all_gather", [&] { run_all_gather(send, recv, count, dtype, timeout); });
}

void Comm::reduce_scatter(const void *send, void *recv, int64_t count, DType dtype, mdlm_reduce_op op,
                          const Timeout &timeout) {
    run("reduce_scatter", [&] { run_reduce_scatter(send, recv, count, dtype, op, timeout); });
}

void Comm::abort() noexcept {
    if (aborted_.exchange(true)) return;
    run_abort();
    // Its own abort comes back here, and finds this one done before it asks for the mutex.
    const std::lock_guard lock(partner_mutex_);
    if (partner_ != nullptr) partner_->abort();
}

void Comm::set_partner(Comm *partner) noexcept {
    const std::lock_guard lock(partner_mutex_);
    partner_ = partner;
    if (partner != nullptr && aborted_) partner->abort();
}

namespace {

// The group of one rank: every collective is a copy.
class SelfComm final : public Comm {
public:
    int32_t rank() const override { return 0; }
    int32_t size() const override { return 1; }

protected:
    void run_all_reduce(const void *send, void *recv, int64_t count, DType dtype, mdlm_reduce_op,
                        const Timeout &) override {
        copy(send, recv, count, dtype);
    }
    void run_all_gather(const void *send, void *recv, int64_t count, DType dtype, const Timeout &) override {
        copy(send, recv, count, dtype);
    }
    void run_reduce_scatter(const void *send, void *recv, int64_t count, DType dtype, mdlm_reduce_op,
                            const Timeout &) override {
        copy(send, recv, count, dtype);
    }

private:
    static void copy(const void *send, void *recv, int64_t count, DType dtype) {
        if (send != recv && count > 0) std::memcpy(recv, send, static_cast<size_t>(count * size_of(dtype)));
    }
};

}  // namespace

std::shared_ptr<Comm> make_self_comm() { return std::make_shared<SelfComm>(); }

}  // namespace mdlm

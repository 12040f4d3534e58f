// SPDX-License-Identifier: Apache-2.0
// A device whose work is done late: what is enqueued keeps its arguments and runs when something waits, on another
// device's kernels, in an order drawn from those that the streams and events allow. Its memory cannot be read or
// written in between, and every piece ends where its last page ends.
#pragma once
#include <cstdint>
#include <memory>

#include "device/device.hpp"

namespace mdlm_test {

// What an asynchronous device or its user may forget. Each must be noticed.
struct LateFaults {
    bool compute_waits = true, transfer_waits = true;  // for events
    bool host_waits = true;                            // for events
    int64_t fail_at = -1;                              // the work that fails, counted from 0
    int64_t allocation = -1;                           // the allocation that fails, of any kind
};

class LateDevice final : public mdlm::Device {
public:
    LateDevice(std::unique_ptr<mdlm::Device> inner, uint64_t seed, LateFaults faults = {});
    ~LateDevice() override;

    mdlm::Traits traits() const override;
    void describe(char *line, size_t cap) const override;
    int64_t alignment(mdlm::DType dtype) const override;
    std::shared_ptr<void> begin_shape() override;
    void prepare(mdlm::Kernel kernel, const mdlm::KernelSize &size) override;
    void launch(mdlm::Kernel kernel, const void *arguments) override;

    void *allocate(size_t bytes, size_t alignment) override;
    void free(void *memory, size_t bytes, size_t alignment) noexcept override;
    void *allocate_pinned(size_t bytes, size_t alignment) override;
    void free_pinned(void *memory, size_t bytes, size_t alignment) noexcept override;

    void copy(void *to, const void *from, size_t bytes) override;
    void zero(void *memory, size_t bytes) override;
    void transfer(mdlm::Stream on, void *to, const void *from, size_t bytes) override;
    void upload(void *to, const void *host, size_t bytes) override;
    void download(void *host, const void *from, size_t bytes) override;
    void copy_any(void *to, const void *from, size_t bytes) override;
    std::unique_ptr<mdlm::Events> make_events(int32_t count) override;
    void synchronize() override;
    void check() override;

    int64_t pending() const;  // work that is enqueued now
    int64_t done() const;     // work that has run
    int64_t most_pending() const;
    int64_t waits() const;        // how often the host has waited while there was something to do
    int64_t allocations() const;  // alive

private:
    struct Queues;
    std::unique_ptr<Queues> q_;
};

}  // namespace mdlm_test

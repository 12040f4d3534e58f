// SPDX-License-Identifier: Apache-2.0
#include "block/staging.hpp"

namespace mdlm {
namespace {

class DeviceStaging final : public Staging {
public:
    DeviceStaging(int64_t ranks, Device &device, Allocator &memory)
        : device_(device), piece_(piece_for(ranks)),
          buffers_(memory.allocate((1 + ranks) * piece_, "buffers for what ranks compare")) {}
    int64_t piece_bytes() const override { return piece_; }
    const void *send() const override { return buffers_.get(); }
    void *recv() const override { return buffers_.get() + piece_; }
    void copy_in(const void *host, int64_t bytes) override {
        device_.upload(buffers_.get(), host, static_cast<size_t>(bytes));
    }
    void copy_out(void *host, int64_t offset, int64_t bytes) const override {
        device_.download(host, buffers_.get() + piece_ + offset, static_cast<size_t>(bytes));
    }

private:
    Device &device_;
    const int64_t piece_;
    const Memory buffers_;
};

}  // namespace

std::unique_ptr<Staging> make_staging(const Comms &comms, Device &device, Allocator &memory) {
    const bool needed = comms.comm->size() > 1 && comms.comm->memory_space() == MDLM_MEMORY_SPACE_DEVICE;
    if (!needed || comms.host != nullptr) return nullptr;
    return std::make_unique<DeviceStaging>(comms.comm->size(), device, memory);
}

}  // namespace mdlm

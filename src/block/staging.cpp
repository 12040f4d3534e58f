// SPDX-License-Identifier: Apache-2.0
#include "block/staging.hpp"

namespace mdlm {
namespace {

class DeviceStaging final : public Staging {
public:
    DeviceStaging(int64_t ranks, Device &device, Allocator &memory)
        : device_(device), buffers_(memory.allocate((1 + ranks) * piece_bytes, "buffers for what ranks compare")) {}
    const void *send() const override { return buffers_.get(); }
    void *recv() const override { return buffers_.get() + piece_bytes; }
    void copy_in(const void *host, int64_t bytes) override {
        device_.copy(buffers_.get(), host, static_cast<size_t>(bytes));
    }
    void copy_out(void *host, int64_t offset, int64_t bytes) const override {
        device_.copy(host, buffers_.get() + piece_bytes + offset, static_cast<size_t>(bytes));
    }

private:
    Device &device_;
    const Memory buffers_;
};

}  // namespace

std::unique_ptr<Staging> make_staging(const Comms &comms, Device &device, Allocator &memory) {
    const bool needed = comms.comm->size() > 1 && comms.comm->memory_space() == MDLM_MEMORY_SPACE_DEVICE;
    if (!needed || comms.host != nullptr) return nullptr;
    return std::make_unique<DeviceStaging>(comms.comm->size(), device, memory);
}

}  // namespace mdlm

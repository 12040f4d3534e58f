// SPDX-License-Identifier: Apache-2.0
// The reference device: plain loops with double accumulation on the calling thread. The measure of the other devices.
#include <cstdio>
#include <cstring>

#include "device/device.hpp"
#include "device/reference/families.hpp"

namespace mdlm {
namespace {

#define MDLM_KERNEL(name, Arguments) [](const void *a) { reference::name(*static_cast<const Arguments *>(a)); },
constexpr void (*runs[])(const void *) = {MDLM_KERNELS(MDLM_KERNEL)};
#undef MDLM_KERNEL

class ReferenceDevice final : public Device {
public:
    Traits traits() const override { return traits_of(MDLM_DEVICE_REFERENCE, 1); }
    void describe(char *line, size_t cap) const override {
        std::snprintf(line, cap, "reference: plain loops, double accumulation, one thread");
    }

    void copy(void *to, const void *from, size_t bytes) override {
        if (bytes != 0) std::memcpy(to, from, bytes);
    }
    void zero(void *memory, size_t bytes) override {
        if (bytes != 0) std::memset(memory, 0, bytes);
    }

    void launch(Kernel kernel, const void *arguments) override { runs[static_cast<int>(kernel)](arguments); }
};

}  // namespace

std::unique_ptr<Device> make_reference_device() { return std::make_unique<ReferenceDevice>(); }

#define MDLM_KERNEL(name, Arguments) MDLM_WORKSPACE(reference::name, Arguments)
constinit const DeviceKind reference_kind = {MDLM_DEVICE_REFERENCE,
                                             false,
                                             [](DType dtype) { return dtype != DType::f16; },
                                             [](int32_t) { return 1; },
                                             {MDLM_KERNELS(MDLM_KERNEL)}};
#undef MDLM_KERNEL

}  // namespace mdlm

// SPDX-License-Identifier: Apache-2.0
// A device: the kernels that an op may call, and its memory. All kernels are stream ordered; on the CPU they are done
// on return.
#pragma once
#include <cstddef>
#include <memory>

#include "base/pool.hpp"
#include "device/traits.hpp"

namespace mdlm {

class Device {
public:
    virtual ~Device() = default;
    virtual Traits traits() const = 0;
    // Of the block's inputs and outputs, which are the caller's. A power of two, at least the size of an element.
    virtual int64_t alignment(DType dtype) const { return size_of(dtype); }
    virtual void describe(char *line, size_t cap) const = 0;

    // Every kernel is prepared at exactly the sizes at which it runs. A device makes then what it needs for that
    // (primitives), so that running allocates nothing, and keeps it as long as the shape that was begun last is held.
    // The handle goes before the device does. Null: there is nothing to hold.
    virtual std::shared_ptr<void> begin_shape() { return nullptr; }
    virtual void prepare(Kernel, const KernelSize &) {}

    virtual void copy(void *to, const void *from, size_t bytes) = 0;  // within the device or to and from the host
    virtual void zero(void *memory, size_t bytes) = 0;
    virtual void synchronize() {}

    // Arguments of the type that the kernel's line in kernel_table.hpp says.
    virtual void launch(Kernel kernel, const void *arguments) = 0;
    template <class Arguments>
    void run(const Arguments &arguments) {
        launch(kernel_of<Arguments>, &arguments);
    }
};

// Each in its own folder.
std::unique_ptr<Device> make_reference_device();
std::unique_ptr<Device> make_cpu_device(std::unique_ptr<Pool> pool, mdlm_matmul matmul = MDLM_MATMUL_AUTO);
bool cpu_has_onednn();  // built with it

}  // namespace mdlm

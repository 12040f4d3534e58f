// SPDX-License-Identifier: Apache-2.0
// A device: the kernels that an op may call, its memory, and its streams. What is enqueued in a stream is done in
// order; on a device whose memory is the host's it is done on return.
#pragma once
#include <cstddef>
#include <memory>

#include "base/pool.hpp"
#include "device/events.hpp"
#include "device/host_memory.hpp"
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

    // Memory of the device, and of the host in such a form that transfers need not wait. nullptr when there is none.
    // Freeing comes when nothing that is enqueued uses it.
    virtual void *allocate(size_t bytes, size_t alignment) { return allocate_host(bytes, alignment); }
    virtual void free(void *memory, size_t bytes, size_t alignment) noexcept { free_host(memory, bytes, alignment); }
    virtual void *allocate_pinned(size_t bytes, size_t alignment) { return allocate_host(bytes, alignment); }
    virtual void free_pinned(void *memory, size_t bytes, size_t alignment) noexcept {
        free_host(memory, bytes, alignment);
    }

    // Enqueued in the compute stream, within the device.
    virtual void copy(void *to, const void *from, size_t bytes) = 0;
    virtual void zero(void *memory, size_t bytes) = 0;
    // Enqueued, between the device and pinned memory, which stays as it is until then.
    virtual void transfer(Stream, void *to, const void *from, size_t bytes) { copy(to, from, bytes); }
    // Between any memory of the host and the device, behind what is in the compute stream; done on return.
    virtual void upload(void *to, const void *host, size_t bytes) { copy(to, host, bytes); }
    virtual void download(void *host, const void *from, size_t bytes) { copy(host, from, bytes); }
    // The same from and to whatever memory it is.
    virtual void copy_any(void *to, const void *from, size_t bytes) { copy(to, from, bytes); }

    virtual std::unique_ptr<Events> make_events(int32_t count);
    // Returns when both streams are empty. Throws what failed in them, here and from then on.
    virtual void synchronize() {}
    // Throws what is known to have failed, without waiting.
    virtual void check() {}
    // Threads of the host that the device would leave idle; null: none.
    virtual Pool *pool() { return nullptr; }

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

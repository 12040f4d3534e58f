// SPDX-License-Identifier: Apache-2.0
// What all blocks of a context share: the device, the group, the memory.
#pragma once
#include <memory>

#include "base/cancellation.hpp"
#include "base/float_environment.hpp"
#include "block/memory.hpp"
#include "block/staging.hpp"
#include "comm/group.hpp"
#include "device/device.hpp"
#include "plan/device_table.hpp"

namespace mdlm {

// Called with every op that ran; mdlm_context_set_observer.
struct Observer {
    void (*call)(void *payload, const mdlm_op_event *event) = nullptr;
    void *payload = nullptr;
};

// Called with what a caller may want to know; mdlm_context_desc.log.
struct Log {
    void (*call)(void *payload, const char *line) = nullptr;
    void *payload = nullptr;
    bool listens() const { return call != nullptr; }
    void write(const char *line) const {
        if (call == nullptr) return;
        const CallersFloats floats;
        call(payload, line);
    }
};

struct Engine {
    Engine(std::unique_ptr<Device> d, Comms comms, const mdlm_allocator *device_table, const mdlm_allocator *host_table,
           Cancellation asked = {})
        : device(std::move(d)), device_memory(*device, Allocator::Of::device, device_table),
          host_memory(*device, Allocator::Of::pinned, host_table), cancellation(asked),
          group(comms.comm, comms.host, make_staging(comms, *device, device_memory), comms.timeout_ms, &cancellation) {}

    std::unique_ptr<Device> device;
    Allocator device_memory, host_memory;
    Memory shared_scratch;      // of blocks reserved with share_scratch
    Cancellation cancellation;  // of the call that runs: those that ask begin it
    Group group;
    DeviceTable table = device_table("cpu");  // for the planner
    Observer observer;
    Log log;
    // Reserved now, all blocks.
    int64_t arena_bytes = 0, host_bytes = 0, parameter_bytes = 0, gradient_bytes = 0;
    int64_t high_water_bytes = 0;
};

}  // namespace mdlm

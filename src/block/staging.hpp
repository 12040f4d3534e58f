// SPDX-License-Identifier: Apache-2.0
// The buffers on the device that host memory takes to a communicator for device memory.
#pragma once
#include <memory>

#include "block/memory.hpp"
#include "comm/group.hpp"
#include "device/device.hpp"

namespace mdlm {

// A context's communicators: host is null, or beside one for device memory.
struct Comms {
    std::shared_ptr<Comm> comm, host;
    int64_t timeout_ms = 0;
};

// Null where every communicator that needs host memory takes it.
std::unique_ptr<Staging> make_staging(const Comms &comms, Device &device, Allocator &memory);

}  // namespace mdlm

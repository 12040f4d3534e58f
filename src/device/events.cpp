// SPDX-License-Identifier: Apache-2.0
#include "device/events.hpp"

#include <chrono>

#include "device/device.hpp"

namespace mdlm {

void Events::record(int32_t event, Stream) {
    const auto now = std::chrono::steady_clock::now().time_since_epoch();
    ns_[static_cast<size_t>(event)] = std::chrono::duration_cast<std::chrono::nanoseconds>(now).count();
}

std::unique_ptr<Events> Device::make_events(int32_t count) { return std::make_unique<Events>(count); }

}  // namespace mdlm

// SPDX-License-Identifier: Apache-2.0
// Streams of a device, and points in them.
#pragma once
#include <cstddef>
#include <cstdint>
#include <vector>

namespace mdlm {

// compute: where kernels run, the caller's stream if he gave one. transfer: what goes to the host and back beside it.
enum class Stream { compute, transfer };

// Points in the streams of a device, by number. Recording one again moves it; one that was never recorded has been
// passed. This class is that of devices whose work is done on return.
class Events {
public:
    explicit Events(int32_t count) : ns_(static_cast<size_t>(count), 0) {}
    virtual ~Events() = default;
    Events(const Events &) = delete;
    virtual void record(int32_t event, Stream on);
    // What is enqueued in the stream from now on runs behind the event.
    virtual void wait(int32_t, Stream) {}
    // The host waits for it.
    virtual void finish(int32_t) {}
    // When it was passed, by the device's clock; the host has waited for it.
    virtual int64_t ns(int32_t event) const { return ns_[static_cast<size_t>(event)]; }

protected:
    std::vector<int64_t> ns_;
};

}  // namespace mdlm

// SPDX-License-Identifier: Apache-2.0
// Tells a context's observer of what runs in one call: at once where work is done on return, else when the call has
// enqueued everything and the device is done with it.
#pragma once
#include <memory>
#include <vector>

#include "block/engine.hpp"

namespace mdlm {

class Observing {
public:
    explicit Observing(Engine &engine) : device_(*engine.device), observer_(engine.observer) {}
    bool on() const { return observer_.call != nullptr; }
    // Around what the event is of; nothing else may be between. Not called when off.
    void begin(Stream on);
    void end(const mdlm_op_event &event, Stream on);
    // After the last one.
    void tell();

private:
    static constexpr int32_t in_chunk = 256;
    void call(mdlm_op_event event) const;
    Events &of(size_t index) { return *chunks_[index / in_chunk]; }

    Device &device_;
    const Observer observer_;
    int64_t begin_ns_ = 0;
    std::vector<mdlm_op_event> late_;
    std::vector<std::unique_ptr<Events>> chunks_;  // begin and end of so many of them each
};

}  // namespace mdlm

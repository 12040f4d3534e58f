// SPDX-License-Identifier: Apache-2.0
#include "block/observing.hpp"

#include <chrono>

namespace mdlm {
namespace {

int64_t now() {
    const auto t = std::chrono::steady_clock::now().time_since_epoch();
    return std::chrono::duration_cast<std::chrono::nanoseconds>(t).count();
}

int32_t place(size_t index, int32_t in_chunk) {
    return 2 * static_cast<int32_t>(index % static_cast<size_t>(in_chunk));
}

}  // namespace

void Observing::begin(Stream on) {
    if (!device_.traits().asynchronous) {
        begin_ns_ = now();
        return;
    }
    if (late_.size() == chunks_.size() * in_chunk) chunks_.push_back(device_.make_events(2 * in_chunk));
    of(late_.size()).record(place(late_.size(), in_chunk), on);
}

void Observing::end(const mdlm_op_event &event, Stream on) {
    if (!device_.traits().asynchronous) {
        mdlm_op_event e = event;
        e.begin_ns = begin_ns_, e.end_ns = now();
        return call(e);
    }
    of(late_.size()).record(place(late_.size(), in_chunk) + 1, on);
    late_.push_back(event);
}

void Observing::tell() {
    if (late_.empty()) return;
    device_.synchronize();
    for (size_t i = 0; i < late_.size(); ++i) {
        mdlm_op_event e = late_[i];
        e.begin_ns = of(i).ns(place(i, in_chunk)), e.end_ns = of(i).ns(place(i, in_chunk) + 1);
        call(e);
    }
    late_.clear();
}

void Observing::call(mdlm_op_event event) const {
    event.struct_size = sizeof event;
    const CallersFloats floats;
    observer_.call(observer_.payload, &event);
}

}  // namespace mdlm

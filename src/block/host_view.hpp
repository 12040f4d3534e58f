// SPDX-License-Identifier: Apache-2.0
// Device memory as host code sees it: the memory itself where it is the host's, else a copy that goes back as a whole.
#pragma once
#include <vector>

#include "device/device.hpp"

namespace mdlm {

class HostView {
public:
    enum class Holds { nothing, values };  // nothing: all of it will be written
    HostView(Device &device, void *at, int64_t bytes, Holds holds) : device_(device), at_(static_cast<char *>(at)) {
        if (!device.traits().asynchronous) return;
        copy_.resize(static_cast<size_t>(bytes));
        if (holds == Holds::values) device.download(copy_.data(), at, copy_.size());
    }
    char *get() { return copy_.empty() ? at_ : copy_.data(); }
    void write_back() {
        if (!copy_.empty()) device_.upload(at_, copy_.data(), copy_.size());
    }

private:
    Device &device_;
    char *const at_;
    std::vector<char> copy_;
};

}  // namespace mdlm

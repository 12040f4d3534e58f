// SPDX-License-Identifier: Apache-2.0
// Linked instead of onednn.cpp when oneDNN is not there.
#include "device/cpu/matmul.hpp"
#include "device/device.hpp"

namespace mdlm::cpu {

std::unique_ptr<Library> make_library(int32_t) { return nullptr; }

}  // namespace mdlm::cpu

bool mdlm::cpu_has_onednn() { return false; }

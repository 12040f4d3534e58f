// SPDX-License-Identifier: Apache-2.0
// A context of the C ABI on a late device.
#pragma once
#include "api/objects.hpp"
#include "support/late_device.hpp"

namespace mdlm_test {

// device: told where it is, as long as the context or anything of it lives.
inline mdlm_context *make_late_context(uint64_t seed, int32_t threads, LateFaults faults = {},
                                       LateDevice **device = nullptr) {
    auto late = std::make_unique<LateDevice>(mdlm::make_cpu_device(mdlm::make_own_pool(threads)), seed, faults);
    if (device != nullptr) *device = late.get();
    mdlm_context_desc desc = MDLM_CONTEXT_DESC_INIT;
    return new mdlm_context(std::make_shared<mdlm::Gate>(), std::move(late),
                            mdlm::Comms{mdlm::make_self_comm(), nullptr, 0}, desc);
}

}  // namespace mdlm_test

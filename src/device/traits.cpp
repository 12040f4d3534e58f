// SPDX-License-Identifier: Apache-2.0
// What a device kind can do and needs, without having a device: planning asks here.
#include "base/cores.hpp"
#include "base/status.hpp"
#include "device/device.hpp"

namespace mdlm {
namespace {

[[noreturn]] void no_such(mdlm_device_kind kind) {
    if (kind == MDLM_DEVICE_CUDA) fail(MDLM_ERROR_UNSUPPORTED, "device: this build has no CUDA device");
    fail(MDLM_ERROR_ARGUMENT, "device: expected CPU (0), REFERENCE (1) or CUDA (2), got %d", int(kind));
}

}  // namespace

int64_t Traits::workspace(Kernel kernel, const KernelSize &size) const {
    if (scratch_cap != 0) return scratch_cap;
    if (kind == MDLM_DEVICE_CPU) return cpu_workspace(kernel, size, threads);
    if (kind == MDLM_DEVICE_REFERENCE) return reference_workspace(kernel, size);
    no_such(kind);
}

bool Traits::supports(DType dtype) const {
    if (scratch_cap != 0) return dtype != DType::f64;
    if (kind == MDLM_DEVICE_CPU) return cpu_supports(dtype);
    if (kind == MDLM_DEVICE_REFERENCE) return reference_supports(dtype);
    no_such(kind);
}

Traits traits_of(mdlm_device_kind kind, int32_t threads) {
    if (threads < 0) fail(MDLM_ERROR_ARGUMENT, "threads: expected 0 (all usable cores) or more, got %d", int(threads));
    if (kind == MDLM_DEVICE_CPU) return {kind, threads == 0 ? usable_cores() : threads};
    if (kind == MDLM_DEVICE_REFERENCE) return {kind, 1};
    no_such(kind);
}

}  // namespace mdlm

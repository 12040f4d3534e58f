// SPDX-License-Identifier: Apache-2.0
#include "device/traits.hpp"

#include "base/status.hpp"

namespace mdlm {
namespace {

const DeviceKind *const kinds[] = {&cpu_kind, &reference_kind};

const DeviceKind &of(mdlm_device_kind kind) {
    for (const DeviceKind *k : kinds)
        if (k->kind == kind) return *k;
    if (kind == MDLM_DEVICE_CUDA) fail(MDLM_ERROR_UNSUPPORTED, "device: this build has no CUDA device");
    fail(MDLM_ERROR_ARGUMENT, "device: expected CPU (0), REFERENCE (1) or CUDA (2), got %d", int(kind));
}

}  // namespace

int64_t Traits::workspace(Kernel kernel, const KernelSize &size) const {
    if (!has_workspace(kernel)) return 0;
    return scratch_cap != 0 ? scratch_cap : of(kind).workspaces[static_cast<size_t>(kernel)](size, threads);
}

bool Traits::supports(DType dtype) const { return scratch_cap != 0 ? dtype != DType::f64 : of(kind).supports(dtype); }

Traits traits_of(mdlm_device_kind kind, int32_t threads) {
    if (threads < 0) fail(MDLM_ERROR_ARGUMENT, "threads: expected 0 (all usable cores) or more, got %d", int(threads));
    return {kind, of(kind).threads(threads), 0, of(kind).asynchronous};
}

}  // namespace mdlm

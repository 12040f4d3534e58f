// SPDX-License-Identifier: Apache-2.0
// What a kind of device can do and needs, without having one: planning asks here.
#pragma once
#include <array>
#include <compare>

#include "device/kernel_table.hpp"

namespace mdlm {

// What a kernel at a shape is prepared by, and its scratch bounded by. What a kernel does not use stays as it is here.
struct KernelSize {
    DType dtype = DType::f32;
    int64_t rows = 0;      // m, tokens
    int64_t n = 0, k = 0;  // width is n; rotary_dim is k
    int64_t seq = 0, heads = 0, groups = 0, d = 0;
    bool bias = false, accumulate = true;
    // No sizes, but a kernel may be chosen by them.
    bool dx = true;  // of a norm: is it wanted?
    mdlm_activation activation = MDLM_ACT_GELU;
    mdlm_mask_type mask = MDLM_MASK_NO_MASK;
    bool window = false, dropout = false;
    auto operator<=>(const KernelSize &) const = default;
};

// Scratch bytes of a kernel. They grow with every size in KernelSize and with threads, so that a bound covers all
// smaller shapes.
using Workspace = int64_t (*)(const KernelSize &size, int32_t threads);

// A kind of device: one line of `kinds` in traits.cpp and one of these beside its kernels, or, where the kernels are in
// a library of their own, without them: integers only.
struct DeviceKind {
    mdlm_device_kind kind;
    bool asynchronous;  // as in Traits
    bool (*supports)(DType dtype);
    int32_t (*threads)(int32_t asked);  // that a device of this kind has; 0: all usable cores
    std::array<Workspace, kernel_count> workspaces;
};
extern const DeviceKind cpu_kind, reference_kind;

// An element of `workspaces`: NAME_workspace of the namespace where it is used, for every kernel whose arguments have a
// workspace. One that is missing is missed by the linker.
#define MDLM_WORKSPACE(name, Arguments)                                                                                \
    [](const KernelSize &size, int32_t threads) -> int64_t {                                                           \
        if constexpr (HasWorkspace<Arguments>) return name##_workspace(size, threads);                                 \
        else return 0;                                                                                                 \
    },

// What must be known of a device to plan for it without having it.
struct Traits {
    mdlm_device_kind kind = MDLM_DEVICE_CPU;
    int32_t threads = 1;
    // Not 0: a device that is only planned for, whose kernels that need scratch take this much.
    int64_t scratch_cap = 0;
    // Its memory is its own and work is enqueued: what kernels read of a call (CallState) is in that memory.
    bool asynchronous = false;
    int64_t workspace(Kernel kernel, const KernelSize &size) const;
    bool supports(DType dtype) const;
};
// Traits of a device kind for this build; threads 0 = all usable cores. UNSUPPORTED for a kind that is not built in.
Traits traits_of(mdlm_device_kind kind, int32_t threads);

}  // namespace mdlm

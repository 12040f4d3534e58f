// SPDX-License-Identifier: Apache-2.0
// The kernels of the CPU device, one function for each line of kernel_table.hpp, and the scratch bytes that they need.
// Contracts: device/kernels.hpp.
#pragma once
#include "base/pool.hpp"
#include "device/traits.hpp"

namespace mdlm::cpu {

// The device's pool, and what is made ready for shapes (linear.hpp). Only kernels that are prepared see the latter.
struct Resources;
template <class Arguments>
inline constexpr bool prepared = false;
template <>
inline constexpr bool prepared<LinearForward> = true;
template <>
inline constexpr bool prepared<LinearDgrad> = true;
template <>
inline constexpr bool prepared<LinearWgrad> = true;

#define MDLM_KERNEL(name, Arguments)                                                                                   \
    void name(std::conditional_t<prepared<Arguments>, Resources, Pool> &, const Arguments &);                          \
    int64_t name##_workspace(const KernelSize &, int32_t threads); /* where the arguments have one */                  \
    void name##_prepare(Resources &, const KernelSize &);          /* where it is prepared */
MDLM_KERNELS(MDLM_KERNEL)
#undef MDLM_KERNEL

int64_t linear_workspace(DType, int32_t threads);  // of each of the three

}  // namespace mdlm::cpu

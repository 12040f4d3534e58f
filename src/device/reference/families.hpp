// SPDX-License-Identifier: Apache-2.0
// The reference kernels, one function for each line of kernel_table.hpp, in one file a family. Arguments and rules:
// device/kernels.hpp.
#pragma once
#include "device/traits.hpp"

namespace mdlm::reference {

#define MDLM_KERNEL(name, Arguments)                                                                                   \
    void name(const Arguments &);                                                                                      \
    int64_t name##_workspace(const KernelSize &, int32_t threads); /* where the arguments have one */
MDLM_KERNELS(MDLM_KERNEL)
#undef MDLM_KERNEL

}  // namespace mdlm::reference

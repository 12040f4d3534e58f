// SPDX-License-Identifier: Apache-2.0
// Memory of the host for large tensors.
#pragma once
#include <cstddef>

namespace mdlm {

void *allocate_host(size_t bytes, size_t alignment);  // nullptr when there is none
void free_host(void *memory, size_t bytes, size_t alignment) noexcept;

}  // namespace mdlm

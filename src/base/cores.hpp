// SPDX-License-Identifier: Apache-2.0
// How many threads this process can keep busy.
#pragma once
#include <cstdint>

namespace mdlm {

// The cores of its affinity mask, or what its cgroups' CPU quota is worth in cores where that is less, rounded up. At
// least 1.
int32_t usable_cores();
// The least quota of the process's cgroup and of those that this is nested in, of versions 1 and 2, in cores, rounded
// up; INT32_MAX when there is none or it cannot be read. root: what stands before /proc and the mount points; "" but in
// tests.
int32_t quota_cores(const char *root);

}  // namespace mdlm

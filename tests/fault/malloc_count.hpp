// SPDX-License-Identifier: Apache-2.0
// What replace_malloc.cpp counts.
#pragma once
#include <atomic>
#include <cstdint>

namespace mdlm_test {

extern std::atomic<bool> counting_malloc;
extern std::atomic<int64_t> malloc_calls;          // outside oneDNN
extern std::atomic<int64_t> malloc_calls_of_dnnl;  // on a thread that is inside a call to it

}  // namespace mdlm_test

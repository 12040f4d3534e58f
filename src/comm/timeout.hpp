// SPDX-License-Identifier: Apache-2.0
// How long ranks wait for each other, in milliseconds.
#pragma once
#include <cstdint>

namespace mdlm {

inline constexpr int64_t default_timeout_ms = 600000;  // where the caller says 0
inline constexpr int64_t longest_timeout_ms = INT32_MAX;

}  // namespace mdlm

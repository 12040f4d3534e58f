// SPDX-License-Identifier: Apache-2.0
// How long ranks wait for each other.
#pragma once
#include <cstdint>

#include "base/cancellation.hpp"

namespace mdlm {

// In milliseconds.
inline constexpr int64_t default_timeout_ms = 600000;  // where the caller says 0
inline constexpr int64_t longest_timeout_ms = INT32_MAX;

// The end of a wait for other ranks: a time, or the caller's function cancelled, which is asked meanwhile.
struct Timeout {
    Timeout(int64_t ms, Cancellation *cancellation = nullptr)
        : ms(ms), cancellation(cancellation != nullptr && cancellation->possible() ? cancellation : nullptr) {}
    int64_t ms;
    Cancellation *cancellation;  // null: nobody is asked
    // Between two asks of one wait: soon enough for who wants an end, and no load.
    static constexpr std::chrono::milliseconds between_asks{5};
};

}  // namespace mdlm

// SPDX-License-Identifier: Apache-2.0
// What a test tells the runner about itself: how to repeat it, and that it cannot run here.
#pragma once
#include <cstdlib>
#include <string>

namespace mdlm_test {

// Of the running test case; the runner (main.cpp) reads and clears them.
inline std::string repro_text, skip_reason;

// Printed with the command that repeats this case, should it fail: the seed, the drawn settings.
inline void repro(std::string text) { repro_text = std::move(text); }

// The case cannot run here: `skip("because ...")`, then return from it. It counts as skipped, not as passed.
inline void skip(const std::string &because) { skip_reason = because; }

// True in a build with a sanitizer: several times slower, and it owns malloc.
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
inline constexpr bool sanitized = true;
#elif defined(__has_feature)
#if __has_feature(address_sanitizer) || __has_feature(thread_sanitizer) || __has_feature(undefined_behavior_sanitizer)
inline constexpr bool sanitized = true;
#else
inline constexpr bool sanitized = false;
#endif
#else
inline constexpr bool sanitized = false;
#endif

// True where tests run many times slower: under a sanitizer, or emulated, as suite aarch64 says. What compares numbers
// draws less there: its own instructions and every path are seen all the same.
inline bool slow() {
    static const bool emulated = std::getenv("MDLM_TEST_EMULATED") != nullptr;
    return sanitized || emulated;
}

}  // namespace mdlm_test

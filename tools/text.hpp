// SPDX-License-Identifier: Apache-2.0
// Text that the tools print, and the one way in which they fail.
#pragma once
#include <stdexcept>
#include <string>
#include <string_view>

namespace mdlm::tools {

// What a user gave cannot be used; the text is one line.
struct Bad : std::runtime_error {
    using std::runtime_error::runtime_error;
};

std::string textf(const char *format, ...) __attribute__((format(printf, 1, 2)));
[[noreturn]] void bad(const char *format, ...) __attribute__((format(printf, 1, 2)));

// Control characters become '?', so that whatever a file is called or contains, it stays one line.
std::string one_line(std::string_view text);
// A JSON string with its quotes; bytes that are not UTF-8 become U+FFFD.
std::string json_string(std::string_view text);
// A JSON number; null for what JSON has no number for.
std::string json_number(double value);

}  // namespace mdlm::tools

// SPDX-License-Identifier: Apache-2.0
#include "base/status.hpp"

#include <cstdarg>
#include <cstdio>
#include <cstring>

namespace mdlm {
namespace {

thread_local char line[512];

// Copies at most 511 bytes and keeps it one line.
void copy_line(char (&to)[512], const char *from) noexcept {
    std::snprintf(to, sizeof to, "%s", from == nullptr ? "" : from);
    for (char *c = to; *c != 0; ++c)
        if (*c == '\n' || *c == '\r') *c = ' ';
}

}  // namespace

Error::Error(mdlm_status status, const char *text) noexcept : status_(status) { copy_line(text_, text); }

void fail(mdlm_status status, const char *format, ...) {
    char text[512];
    va_list arguments;
    va_start(arguments, format);
    std::vsnprintf(text, sizeof text, format, arguments);
    va_end(arguments);
    throw Error(status, text);
}

void set_last_error(const char *text) noexcept { copy_line(line, text); }
const char *last_error() noexcept { return line; }

}  // namespace mdlm

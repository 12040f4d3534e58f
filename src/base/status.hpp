// SPDX-License-Identifier: Apache-2.0
// Errors inside the library: an exception with a status and one line, made without touching the heap.
#pragma once
#include <exception>

#include "mdlm/mdlm.h"

namespace mdlm {

class Error : public std::exception {
public:
    Error(mdlm_status status, const char *text) noexcept;
    mdlm_status status() const noexcept { return status_; }
    const char *what() const noexcept override { return text_; }

private:
    mdlm_status status_;
    char text_[512];
};

// Throws an Error whose text is formatted as printf does, cut at 511 bytes. Name the thing, what was expected, what was
// seen.
[[noreturn]] void fail(mdlm_status status, const char *format, ...) __attribute__((format(printf, 2, 3)));

// The thread's error line (a fixed thread-local array). Never allocates; nullptr means "".
void set_last_error(const char *text) noexcept;
const char *last_error() noexcept;

}  // namespace mdlm

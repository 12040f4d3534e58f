// SPDX-License-Identifier: Apache-2.0
// Checks on statuses of the C ABI and on the line that comes with them.
#pragma once
#include <doctest/doctest.h>

#include <cstring>
#include <string>

#include "mdlm/mdlm.h"

namespace mdlm_test {

// "" when line is one line, not empty, and has word in it; otherwise what is wrong.
inline std::string wrong_with(const char *line, const char *word) {
    if (line == nullptr) return "mdlm_last_error is NULL";
    if (*line == 0) return "no error line";
    if (std::strpbrk(line, "\n\r") != nullptr) return std::string("more than one line: ") + line;
    if (std::strstr(line, word) == nullptr) return std::string("'") + word + "' is not in: " + line;
    return "";
}

// "MDLM_ERROR_STATE: tape: ...", for messages.
inline std::string said(mdlm_status status) { return std::string(mdlm_status_name(status)) + ": " + mdlm_last_error(); }

}  // namespace mdlm_test

#define CHECK_OK(call)                                                                                                 \
    do {                                                                                                               \
        const mdlm_status status_ = (call);                                                                            \
        CHECK_MESSAGE(status_ == MDLM_OK, #call " gives ", mdlm_test::said(status_));                                  \
    } while (0)
#define REQUIRE_OK(call)                                                                                               \
    do {                                                                                                               \
        const mdlm_status status_ = (call);                                                                            \
        REQUIRE_MESSAGE(status_ == MDLM_OK, #call " gives ", mdlm_test::said(status_));                                \
    } while (0)
// The call fails with the status, and leaves one line that has the word in it.
#define CHECK_FAILS(call, expected, word)                                                                              \
    do {                                                                                                               \
        mdlm_set_last_error("");                                                                                       \
        const mdlm_status status_ = (call);                                                                            \
        CHECK_MESSAGE(status_ == (expected), #call " gives ", mdlm_test::said(status_));                               \
        const std::string wrong_ = mdlm_test::wrong_with(mdlm_last_error(), word);                                     \
        if (status_ != MDLM_OK) CHECK_MESSAGE(wrong_.empty(), #call ": ", wrong_);                                     \
    } while (0)

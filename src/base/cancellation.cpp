// SPDX-License-Identifier: Apache-2.0
#include "base/cancellation.hpp"

#include <cstdarg>
#include <cstdio>

#include "base/float_environment.hpp"

namespace mdlm {

bool Cancellation::ask_now() {
    {
        const CallersFloats floats;
        answer_ = function_(payload_);
    }
    asked_ = Clock::now();
    return answer_ != 0;
}

void Cancellation::end(const char *format, ...) const {
    char where[256];
    va_list arguments;
    va_start(arguments, format);
    std::vsnprintf(where, sizeof where, format, arguments);
    va_end(arguments);
    fail(MDLM_ERROR_CANCELLED, "cancelled: %s, %s: the function cancelled returned %d: expected 0 to go on", call_,
         where, answer_);
}

}  // namespace mdlm

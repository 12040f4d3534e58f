// SPDX-License-Identifier: Apache-2.0
// The process that made an object. What fork copied into a child is another's there: the threads that it counts on are
// not there, locks may be held by them for ever, and whoever it talks to must not hear of the copy.
#pragma once
#include <unistd.h>

#include "base/status.hpp"

namespace mdlm {

class MadeIn {
public:
    MadeIn() noexcept : process_(getpid()) {}
    bool another_process() const noexcept { return getpid() != process_; }
    // For all calls but destroying.
    void check(const char *name) const {
        if (another_process())
            fail(
                MDLM_ERROR_STATE,
                "%s: process %lld made it, and this is %lld, which fork made: expected a handle made here, or _destroy",
                name, static_cast<long long>(process_), static_cast<long long>(getpid()));
    }

private:
    pid_t process_;
};

}  // namespace mdlm

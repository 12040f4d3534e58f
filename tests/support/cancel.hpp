// SPDX-License-Identifier: Apache-2.0
// A function `cancelled` of the caller's: it counts how often it is asked, and says yes at one of its asks, or as soon
// as a flag is up.
#pragma once
#include <atomic>
#include <chrono>
#include <functional>

#include "mdlm/mdlm.h"

namespace mdlm_test {

struct Canceller {
    using Clock = std::chrono::steady_clock;
    int64_t asks = 0;
    int64_t at = 0;                 // which ask says yes, counted from 1; 0: none
    std::atomic<bool> flag{false};  // says yes, too
    std::function<void()> inside;   // called in every ask
    Clock::time_point first{}, said_yes{};

    static int32_t ask(void *payload) {
        Canceller &self = *static_cast<Canceller *>(payload);
        if (self.asks++ == 0) self.first = Clock::now();
        if (self.inside) self.inside();
        const bool yes = self.asks == self.at || self.flag;
        if (yes) self.said_yes = Clock::now();
        return yes ? -3 : 0;
    }
    void reset(int64_t say_yes_at = 0) { asks = 0, at = say_yes_at, flag = false; }
    template <class Options>  // mdlm_context_desc, mdlm_target, mdlm_chain_options
    void join(Options &options) {
        options.cancelled = ask, options.cancelled_payload = this;
    }
    int64_t ms_since_yes() const {
        return std::chrono::duration_cast<std::chrono::milliseconds>(Clock::now() - said_yes).count();
    }
};

}  // namespace mdlm_test

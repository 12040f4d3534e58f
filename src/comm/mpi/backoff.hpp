// SPDX-License-Identifier: Apache-2.0
// How a rank waits while MPI makes progress only in calls: it looks again at once, then lets others have the core, then
// sleeps between looks.
#pragma once
#include <sched.h>

#include <chrono>
#include <thread>

namespace mdlm {

class Backoff {
public:
    explicit Backoff(int64_t timeout_ms) : timeout_(timeout_ms) {}
    // Between two looks. False when the time is up.
    bool wait() {
        if (++looks_ < eager_looks) return true;
        const auto now = Clock::now();
        if (looks_ == eager_looks) began_ = now;
        const auto waited = now - began_;
        if (waited >= timeout_) return false;
        if (waited < busy) sched_yield();
        else std::this_thread::sleep_for(nap);
        return true;
    }

private:
    using Clock = std::chrono::steady_clock;
    static constexpr int64_t eager_looks = 64;
    static constexpr std::chrono::milliseconds busy{5};
    static constexpr std::chrono::microseconds nap{50};
    std::chrono::milliseconds timeout_;
    Clock::time_point began_{};
    int64_t looks_ = 0;
};

}  // namespace mdlm

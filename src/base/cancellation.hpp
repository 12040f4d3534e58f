// SPDX-License-Identifier: Apache-2.0
// The caller's way to end a call: its function `cancelled`, asked on the thread that made the call and on no other.
#pragma once
#include <chrono>
#include <cstdint>

#include "base/status.hpp"

namespace mdlm {

class Cancellation {
public:
    using Function = int32_t (*)(void *payload);

    Cancellation() = default;  // nobody is asked
    Cancellation(Function function, void *payload, const char *call = "")
        : function_(function), payload_(payload), call_(call) {}

    // A call begins, and errors name it. What was answered to the last one does not matter any more.
    void begin(const char *call) noexcept { call_ = call, answer_ = 0, countdown_ = 0, asked_ = {}; }
    bool possible() const noexcept { return function_ != nullptr; }

    // Asks, unless an answer before has cancelled the call.
    bool ask() {
        if (function_ == nullptr) return false;
        return answer_ != 0 || ask_now();
    }
    // The same, but asks only when the last time was so long ago.
    bool ask_after(std::chrono::milliseconds period) {
        if (function_ == nullptr) return false;
        return answer_ != 0 || (Clock::now() - asked_ >= period && ask_now());
    }
    // Throws CANCELLED when the answer is that.
    void check(const char *where) {
        if (ask()) end("%s", where);
    }
    // For hot loops: a thousand asks a second at most, and nearly nothing in between.
    void poll(const char *where) {
        if (function_ == nullptr || --countdown_ > 0) return;
        countdown_ = polls_a_look;
        if (ask_after(std::chrono::milliseconds(1))) end("%s", where);
    }
    // CANCELLED, naming the call and, as printf would write it, where it ended.
    [[noreturn]] void end(const char *format, ...) const __attribute__((format(printf, 2, 3)));

private:
    using Clock = std::chrono::steady_clock;
    static constexpr int32_t polls_a_look = 32;  // at the clock

    bool ask_now();

    Function function_ = nullptr;
    void *payload_ = nullptr;
    const char *call_ = "";
    int32_t answer_ = 0;  // one that cancels stays until the next call
    int32_t countdown_ = 0;
    Clock::time_point asked_{};
};

// Where there may be nobody to ask.
inline void poll(Cancellation *cancellation, const char *where) {
    if (cancellation != nullptr) cancellation->poll(where);
}

}  // namespace mdlm

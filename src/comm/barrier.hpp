// SPDX-License-Identifier: Apache-2.0
// A barrier for the ranks of a group of threads, and how the group ends.
#pragma once
#include <algorithm>
#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstdio>
#include <cstring>
#include <mutex>
#include <thread>
#include <vector>

#include "base/status.hpp"
#include "comm/timeout.hpp"

namespace mdlm {

// Every wait of a rank is for the next epoch. From an epoch all ranks return, or all are refused: which of the two
// comes first, the last rank's arrival or the end of the group, is settled under the mutex. A rank that looks without
// it looks for the end first and for the epoch after that, since who ends a group may have arrived before.
//
// Look is called where a waiting rank may be preempted between two looks, for tests.
struct NoPause {
    void operator()() const {}
};
template <class Look = NoPause>
class Barrier {
public:
    Barrier(int32_t size, bool spins, Look look = {})
        : epochs_(static_cast<size_t>(size)), spins_(spins), look_(std::move(look)) {}
    int32_t size() const { return static_cast<int32_t>(epochs_.size()); }

    // Returns when all ranks have come.
    void arrive_and_wait(int32_t rank, const Timeout &timeout) {
        if (broken_) refuse();
        std::atomic<uint64_t> &mine = epochs_[static_cast<size_t>(rank)];
        const uint64_t epoch = mine.load(std::memory_order_relaxed) + 1;
        mine = epoch;
        if (arrived_.fetch_add(1) + 1 == size()) {
            arrived_ = 0;
            {
                const std::lock_guard lock(mutex_);
                if (!broken_) done_ = epoch;
            }
            changed_.notify_all();
        } else if (!spin(epoch)) {
            wait(rank, epoch, timeout);
        }
        if (done_ < epoch) refuse();
    }

    // Between the two, a rank may touch others' buffers; abort waits until nobody does.
    bool enter() {
        ++inside_;
        if (!broken_) return true;
        --inside_;
        return false;
    }
    void leave() { --inside_; }
    bool broken() const { return broken_.load(std::memory_order_relaxed); }

    // The first reason stays. What it says of must not be inside. No rank touches another's buffer afterwards. Nothing
    // happens where the epoch unless_done is over.
    void abort(const char *format, int32_t a, int64_t b, int32_t c, uint64_t unless_done = UINT64_MAX) noexcept {
        {
            const std::lock_guard lock(mutex_);
            if (done_ >= unless_done) return;
            if (!broken_) std::snprintf(reason_, sizeof reason_, format, a, static_cast<long long>(b), c);
            broken_ = true;
        }
        changed_.notify_all();
        while (inside_ != 0) std::this_thread::yield();
    }

    [[noreturn]] void refuse() {
        while (inside_ != 0) std::this_thread::yield();
        char reason[sizeof reason_];
        {
            const std::lock_guard lock(mutex_);
            std::memcpy(reason, reason_, sizeof reason);
        }
        fail(MDLM_ERROR_COMM, "%s", reason);
    }

private:
    using Clock = std::chrono::steady_clock;
    // How long a waiting rank keeps its core, which is about what a sleep and a wake cost. Where ranks share cores it
    // gives it away at once: the one that it waits for may need it.
    static constexpr auto spin_time = std::chrono::microseconds(50);

    static void pause() {
#if defined(__x86_64__)
        __builtin_ia32_pause();
#endif
    }

    // True when it is settled: done_ says how.
    bool spin(uint64_t epoch) {
        if (!spins_) return false;
        const auto until = Clock::now() + spin_time;
        do {
            for (int i = 0; i < 16; ++i) {
                if (done_.load(std::memory_order_acquire) >= epoch) return true;
                look_();
                if (broken_) return true;
                pause();
            }
        } while (Clock::now() < until);
        return false;
    }

    void wait(int32_t rank, uint64_t epoch, const Timeout &timeout) {
        const auto begin = Clock::now(), until = begin + std::chrono::milliseconds(timeout.ms);
        std::unique_lock lock(mutex_);
        const auto over = [&] { return done_ >= epoch || broken_; };
        while (timeout.cancellation != nullptr) {
            const auto next = std::min(until, Clock::now() + Timeout::between_asks);
            if (changed_.wait_until(lock, next, over)) return;
            if (next == until) break;
            lock.unlock();  // it may call whatever it likes
            if (timeout.cancellation->ask_after(Timeout::between_asks)) end_cancelled(rank, epoch, begin, timeout);
            lock.lock();
        }
        if (changed_.wait_until(lock, until, over)) return;
        const int32_t missing = first_missing(epoch);
        if (missing < size()) {
            lock.unlock();
            abort("rank %d waited %lld ms for rank %d, which did not come", rank, timeout.ms, missing, epoch);
        } else {
            changed_.wait(lock, over);  // all have come, and the last of them is about to say so
        }
    }

    int32_t first_missing(uint64_t epoch) const {
        int32_t rank = 0;
        while (rank < size() && epochs_[static_cast<size_t>(rank)] >= epoch) ++rank;
        return rank;
    }

    // The others may have come while the caller's function was asked, and go on: they get their error when they next
    // come here.
    [[noreturn]] void end_cancelled(int32_t rank, uint64_t epoch, Clock::time_point begin, const Timeout &timeout) {
        const int32_t missing = std::min(first_missing(epoch), size() - 1);
        const auto waited = std::chrono::duration_cast<std::chrono::milliseconds>(Clock::now() - begin).count();
        abort("rank %d was cancelled when it had waited %lld ms for rank %d", rank, waited, missing);
        timeout.cancellation->end("in its wait of %lld ms for rank %d", static_cast<long long>(waited), missing);
    }

    std::vector<std::atomic<uint64_t>> epochs_;  // that each rank has arrived at
    const bool spins_;
    Look look_;
    std::atomic<int32_t> arrived_{0}, inside_{0};
    std::atomic<uint64_t> done_{0};  // changes under the mutex, as
    std::atomic<bool> broken_{false};
    std::mutex mutex_;
    std::condition_variable changed_;
    char reason_[256] = "the group was aborted";
};

}  // namespace mdlm

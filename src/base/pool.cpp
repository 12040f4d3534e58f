// SPDX-License-Identifier: Apache-2.0
#include "base/pool.hpp"

#include <pthread.h>
#include <signal.h>

#include <atomic>
#include <condition_variable>
#include <mutex>
#include <system_error>
#include <thread>
#include <vector>

#include "base/cores.hpp"
#include "base/float_environment.hpp"
#include "base/made_in.hpp"
#include "base/status.hpp"

namespace mdlm {
namespace {

using Task = void (*)(void *, int64_t, int32_t);

// Threads begin with their maker's signal mask: in this scope one that blocks what is sent to the process, so that its
// handlers run on threads of the host alone. What a thread itself causes stays, since the kernel ends a process for it
// where it is blocked.
class SignalsBlocked {
public:
    SignalsBlocked() noexcept {
        sigset_t all;
        sigfillset(&all);
        for (const int own : {SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGTRAP, SIGSYS}) sigdelset(&all, own);
        pthread_sigmask(SIG_SETMASK, &all, &before_);
    }
    ~SignalsBlocked() { pthread_sigmask(SIG_SETMASK, &before_, nullptr); }
    SignalsBlocked(const SignalsBlocked &) = delete;

private:
    sigset_t before_;
};

// The threads, and what they share. Worker 0 is the thread that calls run(). A call is closed before run() returns, so
// a worker that wakes late finds nothing of it.
class Workers {
public:
    explicit Workers(int32_t threads) {
        const SignalsBlocked blocked;
        try {
            workers_.reserve(static_cast<size_t>(threads - 1));
            for (int32_t id = 1; id < threads; ++id) workers_.emplace_back([this, id] { serve(id); });
        } catch (const std::system_error &e) {
            stop();
            fail(MDLM_ERROR_THREAD, "thread %d of %d could not be made: %s", static_cast<int>(workers_.size()) + 2,
                 static_cast<int>(threads), e.what());
        } catch (...) {
            stop();
            throw;
        }
    }
    ~Workers() { stop(); }
    Workers(const Workers &) = delete;
    int32_t size() const { return static_cast<int32_t>(workers_.size()) + 1; }

    void run(int64_t count, Task task, void *argument) {
        if (count <= 1 || workers_.empty()) {
            for (int64_t i = 0; i < count; ++i) task(argument, i, 0);
            return;
        }
        {
            const std::lock_guard lock(mutex_);
            call_ = {task, argument, count};
            next_.store(0, std::memory_order_relaxed);
            open_ = true;
            ++number_;
        }
        wake_.notify_all();
        work(call_, 0);
        std::unique_lock lock(mutex_);
        open_ = false;
        idle_.wait(lock, [this] { return busy_ == 0; });
    }

private:
    struct Call {
        Task task = nullptr;
        void *argument = nullptr;
        int64_t count = 0;
    };

    void work(const Call &call, int32_t worker) {
        for (;;) {
            const int64_t i = next_.fetch_add(1, std::memory_order_relaxed);
            if (i >= call.count) return;
            call.task(call.argument, i, worker);
        }
    }

    void serve(int32_t id) {
        FloatEnvironment().install(FloatEnvironment::current());
        uint64_t seen = 0;
        std::unique_lock lock(mutex_);
        for (;;) {
            wake_.wait(lock, [&] { return stopping_ || (open_ && number_ != seen); });
            if (stopping_) return;
            seen = number_;
            ++busy_;
            const Call call = call_;
            lock.unlock();
            work(call, id);
            lock.lock();
            if (--busy_ == 0) idle_.notify_one();
        }
    }

    void stop() noexcept {
        {
            const std::lock_guard lock(mutex_);
            stopping_ = true;
        }
        wake_.notify_all();
        for (std::thread &t : workers_) t.join();
    }

    std::mutex mutex_;  // guards all but next_ and workers_
    std::condition_variable wake_, idle_;
    Call call_;
    uint64_t number_ = 0;  // of the call
    int32_t busy_ = 0;     // workers inside the call, without worker 0
    bool open_ = false, stopping_ = false;
    std::atomic<int64_t> next_{0};
    std::vector<std::thread> workers_;
};

class OwnPool final : public Pool {
public:
    explicit OwnPool(int32_t threads) : workers_(new Workers(threads)) {}
    // A child that fork made has none of the threads: joining them, and the end of what they waited on, would wait for
    // ever.
    ~OwnPool() override {
        if (!made_.another_process()) delete workers_;
    }
    int32_t size() const override { return workers_->size(); }

protected:
    void run(int64_t count, Task task, void *argument) override { workers_->run(count, task, argument); }

private:
    const MadeIn made_;
    Workers *const workers_;
};

}  // namespace

std::unique_ptr<Pool> make_own_pool(int32_t threads) {
    if (threads < 0) fail(MDLM_ERROR_ARGUMENT, "threads: expected 0 or more, got %d", static_cast<int>(threads));
    return std::make_unique<OwnPool>(threads == 0 ? usable_cores() : threads);
}

}  // namespace mdlm

#include "base/pool.hpp"

#include <sched.h>

#include <atomic>
#include <cerrno>
#include <condition_variable>
#include <mutex>
#include <system_error>
#include <thread>
#include <vector>

#include "base/status.hpp"

namespace mdlm {
namespace {

using Task = void (*)(void *, int64_t, int32_t);

// Worker 0 is the thread that calls each(). A call is closed before each() returns, so a worker that wakes late finds nothing of it.
class OwnPool final : public Pool {
public:
    explicit OwnPool(int32_t threads) {
        try {
            workers_.reserve(static_cast<size_t>(threads - 1));
            for (int32_t id = 1; id < threads; ++id) workers_.emplace_back([this, id] { serve(id); });
        } catch (const std::system_error &e) {
            stop();
            fail(MDLM_ERROR_THREAD, "thread %d of %d could not be made: %s", static_cast<int>(workers_.size()) + 2, static_cast<int>(threads),
                 e.what());
        } catch (...) {
            stop();
            throw;
        }
    }
    ~OwnPool() override { stop(); }
    int32_t size() const override { return static_cast<int32_t>(workers_.size()) + 1; }

protected:
    void run(int64_t count, Task task, void *argument) override {
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

class CallerPool final : public Pool {
public:
    explicit CallerPool(const mdlm_threadpool &pool) : pool_(pool) {}
    int32_t size() const override { return pool_.num_threads; }

protected:
    void run(int64_t count, Task task, void *argument) override {
        if (count > 0) pool_.parallel_for(pool_.payload, count, task, argument);
    }

private:
    mdlm_threadpool pool_;
};

}  // namespace

std::unique_ptr<Pool> make_own_pool(int32_t threads) {
    if (threads < 0) fail(MDLM_ERROR_ARGUMENT, "threads: expected 0 or more, got %d", static_cast<int>(threads));
    return std::make_unique<OwnPool>(threads == 0 ? usable_cores() : threads);
}

std::unique_ptr<Pool> make_caller_pool(const mdlm_threadpool &pool) {
    if (pool.num_threads < 1) fail(MDLM_ERROR_ARGUMENT, "threadpool.num_threads: expected 1 or more, got %d", static_cast<int>(pool.num_threads));
    if (pool.parallel_for == nullptr) fail(MDLM_ERROR_ARGUMENT, "threadpool.parallel_for: expected a function, got NULL");
    return std::make_unique<CallerPool>(pool);
}

int32_t usable_cores() {
    // The kernel refuses a set smaller than its own; sizes of machines are not known at compile time.
    for (int cpus = 1024; cpus <= 1 << 20; cpus *= 2) {
        cpu_set_t *set = CPU_ALLOC(cpus);
        if (set == nullptr) break;
        const size_t bytes = CPU_ALLOC_SIZE(cpus);
        CPU_ZERO_S(bytes, set);
        const bool known = sched_getaffinity(0, bytes, set) == 0;
        const bool too_small = !known && errno == EINVAL;
        const int count = known ? CPU_COUNT_S(bytes, set) : 0;
        CPU_FREE(set);
        if (known && count > 0) return count;
        if (!too_small) break;
    }
    const unsigned count = std::thread::hardware_concurrency();
    return count == 0 ? 1 : static_cast<int32_t>(count);
}

}  // namespace mdlm

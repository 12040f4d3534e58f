// SPDX-License-Identifier: Apache-2.0
// A pool of the caller's. What it calls back with is checked before anything is done with it, since workers are places
// in scratch memory.
#include <array>
#include <atomic>
#include <cstdio>
#include <thread>
#include <vector>

#include "base/float_environment.hpp"
#include "base/pool.hpp"
#include "base/status.hpp"

namespace mdlm {
namespace {

using Task = void (*)(void *, int64_t, int32_t);

constexpr int32_t most_threads = 65536;

class CallerPool final : public Pool {
public:
    explicit CallerPool(const mdlm_threadpool &pool) : pool_(pool), running_(static_cast<size_t>(pool.num_threads)) {}
    int32_t size() const override { return pool_.num_threads; }

protected:
    void run(int64_t count, Task task, void *argument) override {
        if (count <= 0) return;
        Call &call = calls_[next_++ % calls_.size()];
        call.begin(*this, task, argument, count);
        try {
            const CallersFloats floats;
            pool_.parallel_for(
                pool_.payload, count,
                [](void *c, int64_t index, int32_t worker) { static_cast<Call *>(c)->task(index, worker); }, &call);
        } catch (...) {
            call.close();
            throw;
        }
        call.close();
        call.check();
    }

private:
    // One call of parallel_for. A task that comes after its end finds it closed, as long as not too many calls came in
    // between.
    class Call {
    public:
        void begin(CallerPool &pool, Task task, void *argument, int64_t count) {
            pool_ = &pool, task_ = task, argument_ = argument, count_ = count;
            done_ = 0, sum_ = 0, squares_ = 0, wrong_ = false;
            inside_.fetch_and(~closed, std::memory_order_release);  // a late task may be on its way out
        }
        void task(int64_t index, int32_t worker) noexcept {
            if ((inside_.fetch_add(1, std::memory_order_acq_rel) & closed) == 0) checked(index, worker);
            inside_.fetch_sub(1, std::memory_order_acq_rel);
        }
        // A pool that returned too early still has tasks inside, which use the caller's buffers.
        void close() noexcept {
            inside_.fetch_or(closed, std::memory_order_acq_rel);
            while ((inside_.load(std::memory_order_acquire) & ~closed) != 0) std::this_thread::yield();
        }
        void check() const {
            if (wrong_) fail(MDLM_ERROR_CALLBACK, "threadpool.parallel_for: %s", reason_);
            const auto n = static_cast<uint64_t>(count_);
            if (done_ != n)
                fail(MDLM_ERROR_CALLBACK,
                     "threadpool.parallel_for: %llu tasks had run when it returned: expected all %llu",
                     (unsigned long long)done_, (unsigned long long)n);
            // As many tasks as indices: modulo 2^64 their sums tell whether they were the same.
            const unsigned __int128 sum = static_cast<unsigned __int128>(n) * (n - 1) / 2,
                                    squares = sum * (2 * n - 1) / 3;
            if (sum_ != static_cast<uint64_t>(sum) || squares_ != static_cast<uint64_t>(squares))
                fail(MDLM_ERROR_CALLBACK,
                     "threadpool.parallel_for: it ran some of %llu indices twice: expected each of them once",
                     (unsigned long long)n);
        }

    private:
        static constexpr int64_t closed = int64_t{1} << 62;

        void checked(int64_t index, int32_t worker) noexcept {
            if (index < 0 || index >= count_)
                return blame("it gave a task the index %lld: expected 0 .. %lld", index, count_ - 1);
            if (worker < 0 || worker >= pool_->size())
                return blame("it gave a task the worker %lld: expected 0 .. %lld", worker, pool_->size() - 1);
            std::atomic<bool> &running = pool_->running_[static_cast<size_t>(worker)];
            if (running.exchange(true, std::memory_order_acquire))
                return blame(
                    "it gave worker %lld to two running tasks, one of index %lld: expected one task at a time for each",
                    worker, index);
            {
                const LibraryFloats floats;
                task_(argument_, index, worker);
            }
            running.store(false, std::memory_order_release);
            const auto i = static_cast<uint64_t>(index);
            done_.fetch_add(1, std::memory_order_relaxed);
            sum_.fetch_add(i, std::memory_order_relaxed);
            squares_.fetch_add(i * i, std::memory_order_relaxed);
        }
        // The first reason stays.
        void blame(const char *format, int64_t a, int64_t b) noexcept {
            if (!wrong_.exchange(true))
                std::snprintf(reason_, sizeof reason_, format, static_cast<long long>(a), static_cast<long long>(b));
        }

        CallerPool *pool_ = nullptr;
        Task task_ = nullptr;
        void *argument_ = nullptr;
        int64_t count_ = 0;
        std::atomic<int64_t> inside_{closed};  // tasks
        std::atomic<uint64_t> done_{0}, sum_{0}, squares_{0};
        std::atomic<bool> wrong_{false};
        char reason_[128] = "";
    };

    mdlm_threadpool pool_;
    std::vector<std::atomic<bool>> running_;  // by worker
    std::array<Call, 16> calls_;
    size_t next_ = 0;
};

}  // namespace

std::unique_ptr<Pool> make_caller_pool(const mdlm_threadpool &pool) {
    if (pool.num_threads < 1 || pool.num_threads > most_threads)
        fail(MDLM_ERROR_ARGUMENT, "threadpool.num_threads: expected 1 .. %d, got %d", most_threads,
             static_cast<int>(pool.num_threads));
    if (pool.parallel_for == nullptr)
        fail(MDLM_ERROR_ARGUMENT, "threadpool.parallel_for: expected a function, got NULL");
    return std::make_unique<CallerPool>(pool);
}

}  // namespace mdlm

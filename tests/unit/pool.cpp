// SPDX-License-Identifier: Apache-2.0
// Pools: every index once, workers apart, nothing left behind.
#include "base/pool.hpp"

#include <doctest/doctest.h>

#include <atomic>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "base/cores.hpp"
#include "base/status.hpp"

using namespace mdlm;

namespace {

void check_pool(Pool &pool) {
    for (const int64_t count : {0, 1, 2, 3, 100, 1000}) {
        std::vector<std::atomic<int>> calls(static_cast<size_t>(count));
        std::vector<std::atomic<int>> running(static_cast<size_t>(pool.size()));
        std::atomic<int> wrong{0};
        for (int round = 1; round <= 20; ++round) {
            pool.parallel_for(count, [&](int64_t i, int32_t worker) {
                if (worker < 0 || worker >= pool.size() || running[static_cast<size_t>(worker)].fetch_add(1) != 0)
                    ++wrong;
                ++calls[static_cast<size_t>(i)];
                running[static_cast<size_t>(worker)].fetch_sub(1);
            });
            for (const auto &c : calls) wrong += c != round;
        }
        CHECK(wrong == 0);
    }
}

}  // namespace

TEST_CASE("pool: own threads run every index once") {
    for (const int32_t threads : {1, 2, 3, 5}) {
        const auto pool = make_own_pool(threads);
        CHECK(pool->size() == threads);
        check_pool(*pool);
    }
    CHECK(make_own_pool(0)->size() == usable_cores());
    CHECK(usable_cores() >= 1);
}

TEST_CASE("pool: other threads do take part, and the caller is worker 0") {
    const auto pool = make_own_pool(2);
    std::atomic<int> inside{0};
    std::thread::id of[2];
    // Two tasks that wait for each other end only when two threads run them.
    pool->parallel_for(2, [&](int64_t, int32_t worker) {
        of[worker] = std::this_thread::get_id();
        ++inside;
        while (inside < 2) std::this_thread::yield();
    });
    CHECK(of[0] == std::this_thread::get_id());
    CHECK(of[1] != of[0]);
}

TEST_CASE("pool: many short calls, and pools that come and go") {
    for (int i = 0; i < 20; ++i) {
        const auto pool = make_own_pool(3);
        std::atomic<int64_t> sum{0};
        for (int call = 0; call < 200; ++call) pool->parallel_for(4, [&](int64_t index, int32_t) { sum += index; });
        CHECK(sum == 200 * 6);
    }
}

TEST_CASE("pool: a caller's pool gets what parallel_for() was given") {
    struct Counts {
        int calls = 0;
        int64_t tasks = 0;
    } counts;
    mdlm_threadpool table = MDLM_THREADPOOL_INIT;
    table.num_threads = 2;
    table.payload = &counts;
    table.parallel_for = [](void *payload, int64_t count, void (*task)(void *, int64_t, int32_t), void *argument) {
        auto &c = *static_cast<Counts *>(payload);
        ++c.calls;
        c.tasks += count;
        for (int64_t i = count - 1; i >= 0; --i) task(argument, i, static_cast<int32_t>(i % 2));
    };
    const auto pool = make_caller_pool(table);
    CHECK(pool->size() == 2);
    check_pool(*pool);
    CHECK(counts.calls == 20 * 5);  // none for a count of 0
    CHECK(counts.tasks == 20 * (1 + 2 + 3 + 100 + 1000));
}

TEST_CASE("pool: wrong arguments") {
    const auto status = [](auto &&make) {
        try {
            make();
        } catch (const Error &e) {
            return e.status();
        }
        return mdlm_status{MDLM_OK};
    };
    CHECK(status([] { make_own_pool(-1); }) == MDLM_ERROR_ARGUMENT);
    mdlm_threadpool table = MDLM_THREADPOOL_INIT;
    CHECK(status([&] { make_caller_pool(table); }) == MDLM_ERROR_ARGUMENT);
    table.num_threads = 1;
    CHECK(status([&] { make_caller_pool(table); }) == MDLM_ERROR_ARGUMENT);
}

// SPDX-License-Identifier: Apache-2.0
// A pool of the caller's that breaks its rules: nothing is written where it should not be, the call fails and says why,
// and all can go on.
#include <doctest/doctest.h>

#include <atomic>
#include <thread>

#include "base/pool.hpp"
#include "base/status.hpp"
#include "support/checks.hpp"
#include "support/ranks.hpp"
#include "support/rig.hpp"

using namespace mdlm;
using namespace mdlm_test;

namespace {

// Keeps the rules but for one call of parallel_for, where `fault` runs instead.
struct Faulty {
    using Task = void (*)(void *, int64_t, int32_t);
    void (*fault)(int64_t count, Task task, void *argument) = nullptr;
    int calls = 0, at = -1;
    mdlm_threadpool table() {
        return {sizeof(mdlm_threadpool), 3, 0,
                [](void *p, int64_t count, Task task, void *argument) {
                    auto &self = *static_cast<Faulty *>(p);
                    if (self.calls++ == self.at) return self.fault(count, task, argument);
                    for (int64_t i = 0; i < count; ++i) task(argument, i, static_cast<int32_t>(i % 3));
                },
                this};
    }
};

void all(int64_t count, Faulty::Task task, void *argument, int64_t from = 0) {
    for (int64_t i = from; i < count; ++i) task(argument, i, 0);
}

struct Fault {
    const char *said;
    void (*run)(int64_t count, Faulty::Task task, void *argument);
};
const Fault faults[] = {
    {"worker 3: expected 0 .. 2", [](int64_t n, Faulty::Task task, void *a) { task(a, 0, 3), all(n, task, a, 1); }},
    {"worker -1: expected 0 .. 2", [](int64_t n, Faulty::Task task, void *a) { task(a, 0, -1), all(n, task, a, 1); }},
    {"worker 2147483647", [](int64_t n, Faulty::Task task, void *a) { task(a, 0, INT32_MAX), all(n, task, a, 1); }},
    {"index -1: expected 0 ..", [](int64_t n, Faulty::Task task, void *a) { task(a, -1, 0), all(n, task, a); }},
    {"expected 0 ..", [](int64_t n, Faulty::Task task, void *a) { all(n + 1, task, a); }},
    {"tasks had run", [](int64_t, Faulty::Task, void *) {}},
    {"tasks had run", [](int64_t n, Faulty::Task task, void *a) { all(n - 1, task, a); }},
    {"tasks had run", [](int64_t n, Faulty::Task task, void *a) { all(n, task, a), task(a, 0, 0); }},
};

}  // namespace

TEST_CASE("a caller's pool that breaks a rule: the call says which, and the next step is as ever") {
    uint64_t good = 0;
    int calls = 0;
    {
        Faulty pool;
        const mdlm_threadpool table = pool.table();
        Rig rig;
        rig.desc.device = MDLM_DEVICE_CPU;
        rig.desc.threadpool = &table;
        REQUIRE_OK(rig.open());
        const int before = pool.calls;
        REQUIRE_OK(rig.step());
        good = rig.digest();
        calls = pool.calls - before;
    }
    REQUIRE(calls > 20);
    for (const Fault &fault : faults)
        for (const int at : {0, calls / 2, calls - 1}) {
            CAPTURE(fault.said);
            CAPTURE(at);
            Faulty pool;
            const mdlm_threadpool table = pool.table();
            Rig rig;
            rig.desc.device = MDLM_DEVICE_CPU;
            rig.desc.threadpool = &table;
            REQUIRE_OK(rig.open());
            pool.fault = fault.run, pool.at = pool.calls + at;
            mdlm_set_last_error("");
            const mdlm_status status = rig.step();
            CHECK(status == MDLM_ERROR_CALLBACK);
            CHECK(wrong_with(mdlm_last_error(), "threadpool.parallel_for") == "");
            CHECK(wrong_with(mdlm_last_error(), fault.said) == "");
            CHECK_OK(rig.step());
            CHECK(rig.digest() == good);
        }
}

TEST_CASE("a caller's pool: tasks with wrong numbers are not run") {
    struct Said {
        std::atomic<int> outside{0};
        std::atomic<int64_t> ran{0};
    } said;
    for (const Fault &fault : faults) {
        CAPTURE(fault.said);
        Faulty faulty;
        faulty.fault = fault.run, faulty.at = 0;
        const auto pool = make_caller_pool(faulty.table());
        std::string line;
        try {
            pool->parallel_for(5, [&](int64_t i, int32_t worker) {
                ++said.ran;
                if (i < 0 || i >= 5 || worker < 0 || worker >= 3) ++said.outside;
            });
        } catch (const Error &e) {
            line = e.what();
            CHECK(e.status() == MDLM_ERROR_CALLBACK);
        }
        CHECK(wrong_with(line.c_str(), fault.said) == "");
    }
    CHECK(said.outside == 0);
    CHECK(said.ran > 20);
}

TEST_CASE("a caller's pool that runs one index twice and another never is found out") {
    for (const int64_t count : {2, 3, 100, 100000}) {
        Faulty faulty;
        faulty.fault = [](int64_t n, Faulty::Task task, void *a) { all(n - 1, task, a), task(a, 0, 0); };
        faulty.at = 0;
        const auto pool = make_caller_pool(faulty.table());
        CHECK_THROWS_WITH_AS(pool->parallel_for(count, [](int64_t, int32_t) {}), doctest::Contains("twice"), Error);
        CHECK_NOTHROW(pool->parallel_for(count, [](int64_t, int32_t) {}));
    }
}

TEST_CASE("a caller's pool that gives two running tasks the same worker") {
    static std::atomic<int> inside, most;
    static std::atomic<bool> second;
    inside = most = 0, second = false;
    const mdlm_threadpool table = {sizeof(mdlm_threadpool), 2, 0,
                                   [](void *, int64_t count, Faulty::Task task, void *argument) {
                                       std::thread other([&] {
                                           while (inside == 0) std::this_thread::yield();
                                           task(argument, 1, 1);
                                           second = true;
                                       });
                                       task(argument, 0, 1);
                                       other.join();
                                       all(count, task, argument, 2);
                                   },
                                   nullptr};
    const auto pool = make_caller_pool(table);
    const auto body = [](int64_t, int32_t) {
        const int now = ++inside;
        if (now > most) most = now;
        while (!second && most < 2) std::this_thread::yield();
        --inside;
    };
    CHECK_THROWS_WITH_AS(pool->parallel_for(3, body), doctest::Contains("worker 1 to two running tasks"), Error);
    CHECK(most == 1);
}

TEST_CASE("a caller's pool that returns while tasks run: the call waits for them, and late ones find nothing to do") {
    struct Async {
        std::thread first, late;
        std::atomic<bool> started{false};
        std::atomic<int> ran{0};
    } state;
    const mdlm_threadpool table = {sizeof(mdlm_threadpool), 2, 0,
                                   [](void *p, int64_t, Faulty::Task task, void *argument) {
                                       auto &s = *static_cast<Async *>(p);
                                       s.first = std::thread([=] { task(argument, 0, 0); });
                                       s.late = std::thread([=] { sleep_ms(50), task(argument, 1, 1); });
                                       while (!s.started) std::this_thread::yield();
                                   },
                                   &state};
    const auto pool = make_caller_pool(table);
    CHECK_THROWS_WITH_AS(pool->parallel_for(2,
                                            [&](int64_t, int32_t) {
                                                state.started = true;
                                                sleep_ms(5);
                                                ++state.ran;
                                            }),
                         doctest::Contains("had run when it returned"), Error);
    CHECK(state.ran == 1);
    state.first.join(), state.late.join();  // before the pool ends, which a late task still looks into
    CHECK(state.ran == 1);
}

TEST_CASE("a caller's pool that throws") {
    const mdlm_threadpool table = {
        sizeof(mdlm_threadpool), 1, 0,
        [](void *, int64_t, Faulty::Task task, void *a) { task(a, 0, 0), throw Error(MDLM_ERROR_CALLBACK, "thrown"); },
        nullptr};
    const auto pool = make_caller_pool(table);
    CHECK_THROWS_WITH_AS(pool->parallel_for(2, [](int64_t, int32_t) {}), "thrown", Error);
}

// SPDX-License-Identifier: Apache-2.0
// A second thread inside a context gets BUSY, a destroy from it waits for the call, and a pool of the caller's gives
// the same bits.
#include <doctest/doctest.h>

#include <atomic>
#include <thread>

#include "support/api_calls.hpp"
#include "support/checks.hpp"
#include "support/rig.hpp"

using namespace mdlm_test;

namespace {

// A caller's pool: runs the tasks in reverse on the calling thread, and before that, once armed, calls `intrude` from
// another thread.
struct Intruder {
    void (*intrude)(Intruder &) = nullptr;
    Rig *rig = nullptr;
    int calls = 0;
    std::vector<const char *> names;
    std::vector<mdlm_status> seen;
    std::vector<std::string> lines;
    bool done = false;

    mdlm_threadpool table(int32_t threads = 3) {
        return {sizeof(mdlm_threadpool), threads, 0,
                [](void *payload, int64_t count, void (*task)(void *, int64_t, int32_t), void *argument) {
                    auto &self = *static_cast<Intruder *>(payload);
                    ++self.calls;
                    if (self.intrude != nullptr && !self.done) {
                        self.done = true;
                        std::thread([&] { self.intrude(self); }).join();
                    }
                    for (int64_t i = count - 1; i >= 0; --i) task(argument, i, static_cast<int32_t>(i % 3));
                },
                this};
    }
    void note(const char *name, mdlm_status status) {
        names.push_back(name);
        seen.push_back(status);
        lines.emplace_back(mdlm_last_error());
    }
};

uint64_t bits_of(int32_t threads) {
    Rig rig;
    rig.desc.device = MDLM_DEVICE_CPU;
    rig.desc.num_threads = threads;
    REQUIRE_OK(rig.open());
    REQUIRE_OK(rig.step());
    return rig.digest();
}

}  // namespace

TEST_CASE("the caller's pool gives the bits of the library's") {
    Intruder pool;
    const mdlm_threadpool table = pool.table();
    Rig rig;
    rig.desc.device = MDLM_DEVICE_CPU;
    rig.desc.threadpool = &table;
    REQUIRE_OK(rig.open());
    REQUIRE_OK(rig.step());
    CHECK(pool.calls > 0);
    CHECK(rig.digest() == bits_of(1));
    CHECK(rig.digest() == bits_of(2));
    CHECK(rig.digest() == bits_of(5));
}

TEST_CASE("a second thread gets BUSY and nothing happens") {
    Intruder pool;
    const mdlm_threadpool table = pool.table();
    Rig rig;
    rig.desc.device = MDLM_DEVICE_CPU;
    rig.desc.threadpool = &table;
    REQUIRE_OK(rig.open());
    REQUIRE_OK(rig.step());
    const uint64_t good = rig.digest();
    pool.rig = &rig;
    pool.intrude = [](Intruder &self) {
        for (const ApiCall &one : api_calls())
            if (one.busy) self.note(one.name, one.call(*self.rig));
    };
    REQUIRE_OK(mdlm_params_zero_grads(rig.block));
    REQUIRE_OK(rig.forward());
    CHECK(pool.seen.size() > 40);
    for (size_t i = 0; i < pool.seen.size(); ++i) {
        CAPTURE(pool.names[i]);
        CHECK(pool.seen[i] == MDLM_ERROR_BUSY);
        CHECK(wrong_with(pool.lines[i].c_str(), "context") == "");
    }
    CHECK_OK(rig.backward());
    CHECK(rig.digest() == good);
}

TEST_CASE("destroy from another thread during a call") {
    // Each of the handles, and all of them: the call ends well and then everything is freed (the sanitizer build would
    // tell).
    for (const int which : {1, 2, 4, 7}) {
        for (const bool in_backward : {false, true}) {
            CAPTURE(which);
            CAPTURE(in_backward);
            Intruder pool;
            const mdlm_threadpool table = pool.table();
            Rig rig;
            rig.desc.device = MDLM_DEVICE_CPU;
            rig.desc.threadpool = &table;
            REQUIRE_OK(rig.open());
            pool.rig = &rig;
            if (in_backward) REQUIRE_OK(rig.forward());
            static int chosen;
            chosen = which;
            pool.intrude = [](Intruder &self) {
                if ((chosen & 1) != 0) mdlm_context_destroy(std::exchange(self.rig->context, nullptr));
                if ((chosen & 2) != 0) mdlm_block_destroy(std::exchange(self.rig->block, nullptr));
                if ((chosen & 4) != 0) mdlm_tape_destroy(std::exchange(self.rig->tape, nullptr));
            };
            if (in_backward) CHECK_OK(rig.backward());
            else CHECK_OK(rig.forward());
            CHECK(pool.done);
            if (which == 1) {  // block and tape are alive, and with them the device
                if (in_backward) CHECK_OK(rig.step());
                else CHECK_OK(rig.backward());
            }
        }
    }
}

TEST_CASE("many threads hammer one context: each call works or is BUSY") {
    Rig rig;
    REQUIRE_OK(rig.open());
    REQUIRE_OK(rig.step());
    const uint64_t good = rig.digest();
    std::atomic<int> worked = 0, busy = 0, other = 0;
    std::vector<std::thread> threads;
    for (int t = 0; t < 4; ++t)
        threads.emplace_back([&, t] {
            Buffer y(rig.y.size());
            for (int i = 0; i < 50; ++i) {
                mdlm_memory memory = MDLM_MEMORY_INIT;
                const mdlm_status s = t % 2 == 0
                                          ? mdlm_block_memory(rig.block, &memory)
                                          : mdlm_block_forward(rig.block, &rig.batch, rig.x.get(), nullptr, y.get());
                ++(s == MDLM_OK ? worked : s == MDLM_ERROR_BUSY ? busy : other);
            }
        });
    for (std::thread &thread : threads) thread.join();
    CHECK(other == 0);
    CHECK(worked > 0);
    CHECK_OK(rig.step());
    CHECK(rig.digest() == good);
}

TEST_CASE("each thread has its own error line") {
    mdlm_set_last_error("of the main thread");
    std::string before, after;
    std::thread([&] {
        before = mdlm_last_error();
        mdlm_config_validate(nullptr);
        after = mdlm_last_error();
    }).join();
    CHECK(before == "");
    CHECK(wrong_with(after.c_str(), "config") == "");
    CHECK(std::string(mdlm_last_error()) == "of the main thread");
    mdlm_set_last_error(std::string(2000, 'x').c_str());
    CHECK(std::strlen(mdlm_last_error()) == 511);
    mdlm_set_last_error("two\nlines");
    CHECK(std::strpbrk(mdlm_last_error(), "\n\r") == nullptr);
}

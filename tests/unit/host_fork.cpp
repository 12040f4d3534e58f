// SPDX-License-Identifier: Apache-2.0
// A child that fork made: destroying what it inherited works and tells nobody, other calls on it are refused, and new
// contexts work.
#include <doctest/doctest.h>

#include <atomic>
#include <thread>

#include "support/api_calls.hpp"
#include "support/checks.hpp"
#include "support/child.hpp"
#include "support/ranks.hpp"
#include "support/rig.hpp"

using namespace mdlm_test;

namespace {

std::string new_step(int32_t threads, uint64_t good) {
    Rig rig;
    rig.desc.device = MDLM_DEVICE_CPU;
    rig.desc.num_threads = threads;
    EXPECT_OK(rig.open());
    EXPECT_OK(rig.step());
    EXPECT(rig.digest() == good);
    return "";
}

// Every call on handles from before fork.
std::string all_are_refused(Rig &rig) {
    for (const ApiCall &one : api_calls()) {
        mdlm_set_last_error("");
        const mdlm_status status = one.call(rig);
        const std::string wrong = wrong_with(mdlm_last_error(), "fork");
        if (status != MDLM_ERROR_STATE || !wrong.empty())
            return std::string(one.name) + " gives " + said(status) + " " + wrong;
    }
    return "";
}

}  // namespace

TEST_CASE("fork: destroying in the child works in any order, other calls are refused, new contexts work") {
    for (const int32_t threads : {1, 2, 4})
        for (const bool in_flight : {false, true}) {
            CAPTURE(threads);
            CAPTURE(in_flight);
            Rig rig;
            rig.desc.device = MDLM_DEVICE_CPU;
            rig.desc.num_threads = threads;
            REQUIRE_OK(rig.open());
            REQUIRE_OK(rig.step());
            const uint64_t good = rig.digest();
            if (in_flight) REQUIRE_OK(rig.forward());
            sleep_ms(20);  // the workers wait
            for (int order = 0; order < 3; ++order)
                CHECK(in_child([&]() -> std::string {
                          const std::string wrong = all_are_refused(rig);
                          if (!wrong.empty()) return wrong;
                          if (order == 1) {  // from threads of the child at once
                              std::thread a([&] { mdlm_context_destroy(std::exchange(rig.context, nullptr)); });
                              std::thread b([&] { mdlm_block_destroy(std::exchange(rig.block, nullptr)); });
                              mdlm_tape_destroy(std::exchange(rig.tape, nullptr));
                              a.join(), b.join();
                          }
                          if (order == 2) mdlm_context_destroy(std::exchange(rig.context, nullptr));
                          rig.close();
                          const std::string step = new_step(threads, good);
                          if (!step.empty()) return step;
                          return in_child([&] { return new_step(threads, good); });
                      }) == "");
            // The parent's are as they were.
            if (in_flight) CHECK_OK(rig.backward());
            CHECK_OK(rig.step());
            CHECK(rig.digest() == good);
        }
}

TEST_CASE("fork: while a thread is inside a call, and inside a function of the host's") {
    struct Pool {
        std::atomic<bool> inside{false}, go{false};
    } pool;
    const mdlm_threadpool table = {sizeof(mdlm_threadpool), 2, 0,
                                   [](void *p, int64_t count, void (*task)(void *, int64_t, int32_t), void *argument) {
                                       auto &self = *static_cast<Pool *>(p);
                                       self.inside = true;
                                       while (!self.go) sleep_ms(1);
                                       for (int64_t i = 0; i < count; ++i) task(argument, i, 0);
                                   },
                                   &pool};
    Rig rig;
    rig.desc.device = MDLM_DEVICE_CPU;
    rig.desc.threadpool = &table;
    pool.go = true;
    REQUIRE_OK(rig.open());
    REQUIRE_OK(rig.step());
    const uint64_t good = rig.digest();
    pool.go = false, pool.inside = false;
    mdlm_status status = MDLM_ERROR_INTERNAL;
    std::thread other([&] { status = rig.step(); });
    while (!pool.inside) sleep_ms(1);
    const std::string wrong = in_child([&]() -> std::string {
        EXPECT_FAILS(rig.evaluate(), MDLM_ERROR_STATE, "fork");
        rig.close();
        return new_step(2, good);
    });
    pool.go = true;
    other.join();
    CHECK(wrong == "");
    CHECK(status == MDLM_OK);
    CHECK(rig.digest() == good);
}

TEST_CASE("fork: a plan is plain data, and stays usable in the child") {
    Rig rig;
    REQUIRE_OK(mdlm_plan_create(&rig.config, &rig.shape, nullptr, &rig.plan));
    CHECK(in_child([&]() -> std::string {
              mdlm_memory memory = MDLM_MEMORY_INIT;
              EXPECT_OK(mdlm_plan_memory(rig.plan, &memory));
              EXPECT(memory.peak_bytes > 0);
              EXPECT_OK(rig.open());
              EXPECT_OK(rig.step());
              rig.close();
              return "";
          }) == "");
}

TEST_CASE("fork: a group of threads does not hear of a child that destroys its ranks") {
    std::vector<mdlm_comm *> comms(3);
    REQUIRE_OK(mdlm_comm_create_threads(3, comms.data()));
    std::atomic<int> waiting{0};
    std::atomic<bool> forked{false};
    std::string of_child;
    const std::string wrong = on_threads(comms, [&](Rank &r) -> std::string {
        float send = static_cast<float>(r.rank + 1), recv = 0;
        EXPECT_OK(mdlm_comm_all_reduce(r.comm, &send, &recv, 1, MDLM_DTYPE_F32, MDLM_REDUCE_SUM, 60000));
        if (r.rank == 2) {  // the others wait, on what has a waiting thread in the child too, but no such thread
            while (waiting < 2) sleep_ms(1);
            sleep_ms(20);
            of_child = in_child([&]() -> std::string {
                mdlm_context_desc desc = MDLM_CONTEXT_DESC_INIT;
                mdlm_context *context = nullptr;
                desc.comm = comms[2];
                int32_t rank = 0;
                EXPECT_FAILS(mdlm_context_create(&desc, &context), MDLM_ERROR_STATE, "fork");
                EXPECT_FAILS(mdlm_comm_rank(comms[2], &rank, nullptr), MDLM_ERROR_STATE, "fork");
                EXPECT_FAILS(mdlm_comm_abort(comms[1]), MDLM_ERROR_STATE, "fork");
                EXPECT_FAILS(mdlm_comm_all_reduce(comms[2], &send, &recv, 1, MDLM_DTYPE_F32, MDLM_REDUCE_SUM, 0),
                             MDLM_ERROR_STATE, "fork");
                EXPECT_FAILS(mdlm_comm_all_gather(comms[2], &send, &recv, 0, MDLM_DTYPE_F32, 0), MDLM_ERROR_STATE,
                             "fork");
                EXPECT_FAILS(mdlm_comm_reduce_scatter(comms[2], &send, &recv, 0, MDLM_DTYPE_F32, MDLM_REDUCE_SUM, 0),
                             MDLM_ERROR_STATE, "fork");
                for (mdlm_comm *comm : comms) mdlm_comm_destroy(comm);
                return "";
            });
            forked = true;
        }
        ++waiting;
        EXPECT_OK(mdlm_comm_all_reduce(r.comm, &send, &recv, 1, MDLM_DTYPE_F32, MDLM_REDUCE_SUM, 60000));
        EXPECT(recv == 6.0f);
        return "";
    });
    CHECK(wrong == "");
    CHECK(of_child == "");
}

TEST_CASE("fork: no function of the host's is called in the child") {
    static int *calls = nullptr;  // of this process: a child counts in its own copy
    int counted = 0;
    calls = &counted;
    mdlm_comm_table group = MDLM_COMM_TABLE_INIT;
    group.all_reduce = group.reduce_scatter = [](void *, const void *, void *, int64_t, mdlm_dtype, mdlm_reduce_op,
                                                 int64_t, void *) { return mdlm_status{MDLM_OK}; };
    group.all_gather = [](void *, const void *, void *, int64_t, mdlm_dtype, int64_t, void *) {
        return mdlm_status{MDLM_OK};
    };
    group.abort = group.destroy = [](void *) { ++*calls; };
    const mdlm_allocator memory = {sizeof(mdlm_allocator),
                                   [](void *, size_t bytes, size_t alignment, void *) {
                                       ++*calls;
                                       return std::aligned_alloc(alignment,
                                                                 (bytes + alignment - 1) / alignment * alignment);
                                   },
                                   [](void *, void *at, size_t, size_t, void *) {
                                       ++*calls;
                                       std::free(at);
                                   },
                                   nullptr};
    Rig rig;
    rig.desc.device = MDLM_DEVICE_CPU;
    rig.desc.num_threads = 2;
    rig.desc.device_allocator = rig.desc.host_allocator = &memory;
    REQUIRE_OK(mdlm_comm_create(&group, &rig.desc.comm));
    REQUIRE_OK(rig.open());
    CHECK(counted > 0);
    const int before = counted;
    CHECK(in_child([&]() -> std::string {
              rig.close();
              mdlm_comm_abort(rig.desc.comm);
              mdlm_comm_destroy(rig.desc.comm);
              EXPECT(counted == before);
              return "";
          }) == "");
    rig.close();
    mdlm_comm_destroy(rig.desc.comm);
    CHECK(counted > before);
}

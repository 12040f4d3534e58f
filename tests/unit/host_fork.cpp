// SPDX-License-Identifier: Apache-2.0
// A child that fork made: destroying what it inherited works and tells nobody, other calls on it are refused, and new
// contexts work.
#include <doctest/doctest.h>

#include <atomic>
#include <thread>

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
std::string all_are_refused(Rig &r) {
    mdlm_memory memory = MDLM_MEMORY_INIT;
    mdlm_tape_stats stats = MDLM_TAPE_STATS_INIT;
    mdlm_context_stats context_stats = MDLM_CONTEXT_STATS_INIT;
    mdlm_param_desc info = MDLM_PARAM_DESC_INIT;
    mdlm_io io = MDLM_IO_INIT;
    mdlm_tape *tape = nullptr;
    mdlm_block *block = nullptr;
    mdlm_plan *plan = nullptr;
    void *data = nullptr;
    int64_t number = 0;
    float value = 0;
    char text[4];
    const char *const word = "fork";
    EXPECT_FAILS(r.forward(), MDLM_ERROR_STATE, word);
    EXPECT_FAILS(r.evaluate(), MDLM_ERROR_STATE, word);
    EXPECT_FAILS(r.backward(), MDLM_ERROR_STATE, word);
    EXPECT_FAILS(mdlm_params_zero_grads(r.block), MDLM_ERROR_STATE, word);
    EXPECT_FAILS(mdlm_params_changed(r.block), MDLM_ERROR_STATE, word);
    EXPECT_FAILS(mdlm_params_init(r.block, 1), MDLM_ERROR_STATE, word);
    EXPECT_FAILS(mdlm_params_bind(r.block, nullptr, 0, nullptr, 0), MDLM_ERROR_STATE, word);
    EXPECT_FAILS(mdlm_param_bind(r.block, 0, nullptr, nullptr), MDLM_ERROR_STATE, word);
    EXPECT_FAILS(mdlm_param_data(r.block, 0, &data, nullptr), MDLM_ERROR_STATE, word);
    EXPECT_FAILS(mdlm_param_count(r.block, &number), MDLM_ERROR_STATE, word);
    EXPECT_FAILS(mdlm_param_info(r.block, 0, &info), MDLM_ERROR_STATE, word);
    EXPECT_FAILS(mdlm_param_find(r.block, "final_layernorm.bias", &number), MDLM_ERROR_STATE, word);
    EXPECT_FAILS(mdlm_param_set_requires_grad(r.block, 0, 0), MDLM_ERROR_STATE, word);
    EXPECT_FAILS(mdlm_param_read(r.block, 0, nullptr, nullptr, nullptr, MDLM_DTYPE_F32, &value, 4), MDLM_ERROR_STATE,
                 word);
    EXPECT_FAILS(mdlm_param_write(r.block, 0, nullptr, nullptr, nullptr, MDLM_DTYPE_F32, &value, 4), MDLM_ERROR_STATE,
                 word);
    EXPECT_FAILS(mdlm_param_grad_read(r.block, 0, nullptr, nullptr, nullptr, MDLM_DTYPE_F32, &value, 4),
                 MDLM_ERROR_STATE, word);
    EXPECT_FAILS(mdlm_param_gather(r.block, 0, MDLM_DTYPE_F32, &value, 4), MDLM_ERROR_STATE, word);
    EXPECT_FAILS(mdlm_block_memory(r.block, &memory), MDLM_ERROR_STATE, word);
    EXPECT_FAILS(mdlm_block_plan(r.block, &r.shape, &plan), MDLM_ERROR_STATE, word);
    EXPECT_FAILS(mdlm_block_io(r.block, &r.batch, &io), MDLM_ERROR_STATE, word);
    EXPECT_FAILS(mdlm_block_prepare(r.block, &r.batch), MDLM_ERROR_STATE, word);
    EXPECT_FAILS(mdlm_block_reserve(r.block, &r.shape, nullptr), MDLM_ERROR_STATE, word);
    EXPECT_FAILS(mdlm_block_create(r.context, &r.config, &block), MDLM_ERROR_STATE, word);
    EXPECT_FAILS(mdlm_tape_create(r.block, &tape), MDLM_ERROR_STATE, word);
    EXPECT_FAILS(mdlm_tape_reset(r.tape), MDLM_ERROR_STATE, word);
    EXPECT_FAILS(mdlm_tape_set_documents(r.tape, nullptr, 0), MDLM_ERROR_STATE, word);
    EXPECT_FAILS(mdlm_tape_get_stats(r.tape, &stats), MDLM_ERROR_STATE, word);
    EXPECT_FAILS(mdlm_context_synchronize(r.context), MDLM_ERROR_STATE, word);
    EXPECT_FAILS(mdlm_context_alloc(r.context, 64, &data), MDLM_ERROR_STATE, word);
    EXPECT_FAILS(mdlm_context_free(r.context, &value, 4), MDLM_ERROR_STATE, word);
    EXPECT_FAILS(mdlm_context_copy(r.context, &value, text, 4), MDLM_ERROR_STATE, word);
    EXPECT_FAILS(mdlm_context_calibrate(r.context, MDLM_DTYPE_F32), MDLM_ERROR_STATE, word);
    EXPECT_FAILS(mdlm_context_get_device_table(r.context, text, sizeof text, nullptr), MDLM_ERROR_STATE, word);
    EXPECT_FAILS(mdlm_context_set_device_table(r.context, "cpu"), MDLM_ERROR_STATE, word);
    EXPECT_FAILS(mdlm_context_get_stats(r.context, &context_stats), MDLM_ERROR_STATE, word);
    EXPECT_FAILS(mdlm_context_set_observer(r.context, nullptr, nullptr), MDLM_ERROR_STATE, word);
    EXPECT_FAILS(mdlm_context_last_error(r.context, text, sizeof text, nullptr), MDLM_ERROR_STATE, word);
    EXPECT_FAILS(mdlm_context_info(r.context, text, sizeof text, nullptr), MDLM_ERROR_STATE, word);
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

// SPDX-License-Identifier: Apache-2.0
// Bits do not depend on the host's floating-point environment, which is as it was when a call returns; functions of the
// host's run in it.
#include <doctest/doctest.h>

#include <atomic>
#include <cfloat>
#include <cmath>
#include <cstdlib>
#include <thread>

#include "support/checks.hpp"
#include "support/host_floats.hpp"
#include "support/rig.hpp"

using namespace mdlm_test;

namespace {

const HostFloats hosts[] = {
    {FE_TONEAREST, false}, {FE_TONEAREST, true}, {FE_UPWARD, false}, {FE_DOWNWARD, true}, {FE_TOWARDZERO, false}};

// Weights so small that gradients of q and k are denormal numbers.
struct SmallRig : Rig {
    explicit SmallRig(mdlm_device_kind device) : Rig({{"init_method_std", "1e-13"}, {"output_init_std", "1e-13"}}) {
        desc.device = device;
    }
};

int64_t denormals_of(Rig &rig) {
    int64_t count = 0, found = 0;
    mdlm_param_count(rig.block, &count);
    for (int64_t i = 0; i < count; ++i) {
        mdlm_param_desc info = MDLM_PARAM_DESC_INIT;
        void *grad = nullptr;
        if (mdlm_param_info(rig.block, i, &info) != MDLM_OK || mdlm_param_data(rig.block, i, nullptr, &grad) != MDLM_OK)
            return 0;
        for (uint64_t j = 0; j < info.grad_bytes / 4; ++j)
            found += std::fpclassify(static_cast<const float *>(grad)[j]) == FP_SUBNORMAL;
    }
    return found;
}

// Threads made for each call, each in an environment of its own, which the tasks must leave as it is.
struct RestlessPool {
    std::atomic<int> changed{0}, calls{0};
    HostFloats host;  // what parallel_for itself should see
    mdlm_threadpool table(int32_t threads) { return {sizeof(mdlm_threadpool), threads, 0, run, this}; }
    static void run(void *payload, int64_t count, void (*task)(void *, int64_t, int32_t), void *argument) {
        auto &self = *static_cast<RestlessPool *>(payload);
        ++self.calls;
        if (HostFloats::now() != self.host) ++self.changed;
        std::atomic<int64_t> next{0};
        std::vector<std::thread> threads;
        for (int32_t worker = 0; worker < 3; ++worker)
            threads.emplace_back([&, worker] {
                const HostFloats own = hosts[static_cast<size_t>(worker + self.calls) % std::size(hosts)];
                own.set();
                for (int64_t i; (i = next++) < count;) {
                    task(argument, i, worker);
                    if (HostFloats::now() != own) ++self.changed;
                }
            });
        for (std::thread &t : threads) t.join();
    }
};

}  // namespace

TEST_CASE("floats: the same bits in every environment of the host, set before or after the context was made") {
    for (const mdlm_device_kind device : {MDLM_DEVICE_CPU, MDLM_DEVICE_REFERENCE}) {
        CAPTURE(device);
        uint64_t good = 0;
        {
            SmallRig rig(device);
            REQUIRE_OK(rig.open());
            REQUIRE_OK(rig.step());
            good = rig.digest();
            CHECK(denormals_of(rig) > 50);
        }
        for (const HostFloats &host : hosts)
            for (const bool before : {true, false})
                for (const int32_t threads : {1, 2, 3, 4}) {
                    if (device == MDLM_DEVICE_REFERENCE && threads > 1) continue;
                    CAPTURE(host.rounding);
                    CAPTURE(host.flush);
                    CAPTURE(before);
                    CAPTURE(threads);
                    SmallRig rig(device);
                    rig.desc.num_threads = threads;
                    const HostFloats quiet;
                    uint64_t seen = 0;
                    bool kept = true;
                    mdlm_status opened = 0, ran = 0;
                    {
                        const HostFloatsScope scope(before ? host : quiet);
                        opened = rig.open();
                        kept = HostFloats::now() == (before ? host : quiet);
                        host.set();
                        for (int i = 0; i < 3 && ran == MDLM_OK; ++i) ran = rig.step();
                        kept = kept && HostFloats::now() == host;
                        seen = rig.digest();
                    }
                    CHECK(opened == MDLM_OK);
                    CHECK(ran == MDLM_OK);
                    CHECK(kept);
                    CHECK(seen == good);
                }
    }
}

TEST_CASE("floats: tasks on threads of a caller's pool run in one environment, and leave the threads' own") {
    uint64_t good = 0;
    {
        SmallRig rig(MDLM_DEVICE_CPU);
        rig.desc.num_threads = 1;
        REQUIRE_OK(rig.open());
        REQUIRE_OK(rig.step());
        good = rig.digest();
    }
    for (const HostFloats &host : hosts) {
        CAPTURE(host.rounding);
        CAPTURE(host.flush);
        RestlessPool pool;
        pool.host = host;
        const mdlm_threadpool table = pool.table(3);
        SmallRig rig(MDLM_DEVICE_CPU);
        rig.desc.threadpool = &table;
        mdlm_status status = 0;
        {
            const HostFloatsScope scope(host);
            status = rig.open();
            if (status == MDLM_OK) status = rig.step();
        }
        CHECK(status == MDLM_OK);
        CHECK(rig.digest() == good);
        CHECK(pool.calls > 10);
        CHECK(pool.changed == 0);
    }
}

namespace {

// Notes in which environment each function of the host's was called.
struct Witness {
    HostFloats host;
    int seen[8] = {}, wrong[8] = {};
    void note(int which) {
        ++seen[which];
        if (HostFloats::now() != host) ++wrong[which];
    }
};
enum Which { parallel_for, take_memory, give_memory, log_line, grad_ready, observe, collective, leave_group };

mdlm_status copy_all(void *payload, const void *send, void *recv, int64_t count, mdlm_dtype dtype, mdlm_reduce_op,
                     int64_t, void *) {
    static_cast<Witness *>(payload)->note(collective);
    if (send != recv)
        std::memcpy(recv, send,
                    static_cast<size_t>(count) * (dtype == MDLM_DTYPE_F64   ? 8
                                                  : dtype == MDLM_DTYPE_F32 ? 4
                                                                            : 2));
    return MDLM_OK;
}
// A group of two of which both ranks hold the same.
mdlm_status gather_twice(void *payload, const void *send, void *recv, int64_t count, mdlm_dtype dtype, int64_t,
                         void *) {
    static_cast<Witness *>(payload)->note(collective);
    const size_t bytes = static_cast<size_t>(count) * (dtype == MDLM_DTYPE_F64 ? 8 : dtype == MDLM_DTYPE_F32 ? 4 : 2);
    std::memcpy(recv, send, bytes);
    std::memcpy(static_cast<char *>(recv) + bytes, send, bytes);
    return MDLM_OK;
}

}  // namespace

TEST_CASE("floats: functions of the host's run in its environment, and what they change there stays") {
    Witness w;
    w.host = {FE_UPWARD, true};
    mdlm_comm_table group = MDLM_COMM_TABLE_INIT;
    group.size = 2, group.payload = &w;
    group.all_reduce = copy_all, group.reduce_scatter = copy_all, group.all_gather = gather_twice;
    group.destroy = [](void *p) { static_cast<Witness *>(p)->note(leave_group); };
    const mdlm_threadpool pool = {sizeof(mdlm_threadpool), 2, 0,
                                  [](void *p, int64_t count, void (*task)(void *, int64_t, int32_t), void *argument) {
                                      static_cast<Witness *>(p)->note(parallel_for);
                                      for (int64_t i = 0; i < count; ++i) task(argument, i, 1);
                                      static_cast<Witness *>(p)->note(parallel_for);
                                  },
                                  &w};
    const mdlm_allocator memory = {sizeof(mdlm_allocator),
                                   [](void *p, size_t bytes, size_t alignment, void *) {
                                       static_cast<Witness *>(p)->note(take_memory);
                                       return std::aligned_alloc(alignment,
                                                                 (bytes + alignment - 1) / alignment * alignment);
                                   },
                                   [](void *p, void *at, size_t, size_t, void *) {
                                       static_cast<Witness *>(p)->note(give_memory);
                                       std::free(at);
                                   },
                                   &w};
    Rig rig({{"tensor_model_parallel_size", "2"}});
    rig.desc.device = MDLM_DEVICE_CPU;
    rig.desc.threadpool = &pool;
    rig.desc.device_allocator = rig.desc.host_allocator = &memory;
    rig.desc.log = [](void *p, const char *) { static_cast<Witness *>(p)->note(log_line); };
    rig.desc.log_payload = &w;
    mdlm_backward_options options = MDLM_BACKWARD_OPTIONS_INIT;
    options.payload = &w;
    options.grad_ready = [](void *p, int64_t) {
        auto &witness = *static_cast<Witness *>(p);
        witness.note(grad_ready);
        // Every layer another one.
        witness.host.rounding = witness.host.rounding == FE_UPWARD ? FE_DOWNWARD : FE_UPWARD;
        witness.host.set();
        return mdlm_status{MDLM_OK};
    };
    std::vector<mdlm_status> statuses;
    HostFloats after;
    {
        const HostFloatsScope scope(w.host);
        statuses.push_back(mdlm_comm_create(&group, &rig.desc.comm));
        statuses.push_back(rig.open());
        statuses.push_back(mdlm_context_set_observer(
            rig.context, [](void *p, const mdlm_op_event *) { static_cast<Witness *>(p)->note(observe); }, &w));
        statuses.push_back(rig.forward());
        statuses.push_back(rig.backward(&options));
        after = HostFloats::now();
        rig.close();
        mdlm_comm_destroy(rig.desc.comm);
    }
    for (const mdlm_status status : statuses) CHECK(status == MDLM_OK);
    for (int which = parallel_for; which <= leave_group; ++which) {
        CAPTURE(which);
        CHECK(w.seen[which] > 0);
        CHECK(w.wrong[which] == 0);
    }
    CHECK(w.seen[grad_ready] == 3);
    CHECK(after == HostFloats{FE_DOWNWARD, true});
}

TEST_CASE("floats: flags and traps of the host are as they were") {
    Rig rig;
    rig.desc.device = MDLM_DEVICE_CPU;
    rig.desc.num_threads = 2;
    REQUIRE_OK(rig.open());
    for (const int raised : {0, FE_INVALID, FE_DIVBYZERO | FE_UNDERFLOW}) {
        std::feclearexcept(FE_ALL_EXCEPT);
        std::feraiseexcept(raised);
        const mdlm_status status = rig.step();  // inexact, at least
        const int flags = std::fetestexcept(FE_ALL_EXCEPT);
        std::feclearexcept(FE_ALL_EXCEPT);
        CHECK(status == MDLM_OK);
        CHECK(flags == raised);
    }
#if defined(__x86_64__)  // elsewhere exceptions need not be able to trap
    std::fenv_t before;
    std::fegetenv(&before);
    feenableexcept(FE_INVALID | FE_OVERFLOW | FE_DIVBYZERO | FE_INEXACT);
    const mdlm_status status = rig.step();  // would die of SIGFPE
    const int traps = fegetexcept();
    std::fesetenv(&before);
    CHECK(status == MDLM_OK);
    CHECK(traps == (FE_INVALID | FE_OVERFLOW | FE_DIVBYZERO | FE_INEXACT));
#endif
}

TEST_CASE("floats: x87's control word too") {
#if defined(__x86_64__)
    // What the library computes does not use x87; a host's libraries that it calls may.
    const auto control = [] {
        uint16_t word = 0;
        asm volatile("fnstcw %0" : "=m"(word));
        return word;
    };
    static uint16_t inside = 0;
    const uint16_t before = control(), single = 0x007f;  // precision of a float, to nearest
    asm volatile("fldcw %0" : : "m"(single));
    // A task on the host's thread is the library's.
    mdlm_threadpool pool = {sizeof(mdlm_threadpool), 1, 0,
                            [](void *, int64_t count, void (*task)(void *, int64_t, int32_t), void *argument) {
                                asm volatile("fnstcw %0" : "=m"(inside));
                                for (int64_t i = 0; i < count; ++i) task(argument, i, 0);
                            },
                            nullptr};
    Rig rig;
    rig.desc.device = MDLM_DEVICE_CPU;
    rig.desc.threadpool = &pool;
    const mdlm_status opened = rig.open(), ran = rig.step();
    const uint16_t after = control();
    asm volatile("fldcw %0" : : "m"(before));
    CHECK(opened == MDLM_OK);
    CHECK(ran == MDLM_OK);
    CHECK(inside == single);
    CHECK(after == single);
#endif
}

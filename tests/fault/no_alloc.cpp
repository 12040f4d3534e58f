// SPDX-License-Identifier: Apache-2.0
// Forward and backward allocate nothing: no call of malloc by the library, none of the caller's allocators. The first
// step after reserve counts too, and one of another shape after prepare.
#include <doctest/doctest.h>

#include <atomic>
#include <cstdlib>
#include <cstring>
#include <memory>

#include "fault/inject.hpp"
#include "fault/malloc_count.hpp"
#include "support/checks.hpp"
#include "support/rank_rig.hpp"
#include "support/repro.hpp"
#include "support/rig.hpp"

using namespace mdlm_test;

namespace {

struct Counts {
    int64_t ours = 0, dnnl = 0, allocator = 0;
};

template <class F>
Counts count(FaultyAllocator &allocator, F &&f) {
    const int64_t before = allocator.calls;
    malloc_calls = malloc_calls_of_dnnl = 0;
    counting_malloc = true;
    f();
    counting_malloc = false;
    return {malloc_calls, malloc_calls_of_dnnl, allocator.calls - before};
}

// Steps of the reserved shape and of a smaller one, with a tape and without.
void run(Rig &rig) {
    FaultyAllocator allocator;
    const mdlm_allocator table = allocator.table();
    rig.desc.device_allocator = rig.desc.host_allocator = &table;
    rig.desc.num_threads = 3;
    int64_t asks = 0;
    rig.desc.cancelled = [](void *n) -> int32_t { return ++*static_cast<int64_t *>(n), 0; };
    rig.desc.cancelled_payload = &asks;
    rig.shape.evaluate_in_flight = 1;
    rig.shape.max_documents = 2;
    REQUIRE_OK(rig.open());
    CHECK(allocator.calls > 0);
    static constexpr int32_t documents[] = {0, 3, 7};
    mdlm_batch smaller = rig.batch;
    smaller.seq_length = 7;
    smaller.micro_batch_size = 1;
    smaller.cu_seqlens = documents;
    smaller.num_documents = 2;
    mdlm_status status = MDLM_OK;
    int64_t told = 0;
    const auto step = [&] {
        if (status == MDLM_OK) status = rig.step();
        if (status == MDLM_OK) status = rig.evaluate();
    };
    for (const char *what : {"first step", "second step", "observed step"}) {
        CAPTURE(what);
        if (std::strcmp(what, "observed step") == 0)
            REQUIRE_OK(mdlm_context_set_observer(
                rig.context, [](void *n, const mdlm_op_event *) { ++*static_cast<int64_t *>(n); }, &told));
        const Counts counts = count(allocator, step);
        REQUIRE_OK(status);
        CHECK(counts.ours == 0);
        CHECK(counts.allocator == 0);
        if (rig.desc.device == MDLM_DEVICE_REFERENCE) CHECK(counts.dnnl == 0);
    }
    CHECK(told > 0);
    CHECK(asks > told);
    REQUIRE_OK(mdlm_block_prepare(rig.block, &smaller));
    rig.batch = smaller;
    const Counts counts = count(allocator, step);
    REQUIRE_OK(status);
    CHECK(counts.ours == 0);
    CHECK(counts.allocator == 0);
    rig.close();
    CHECK(allocator.live_bytes == 0);
}

bool cannot_count() {
    if (sanitized) skip("because malloc is the sanitizer's");
    return sanitized;
}

}  // namespace

TEST_CASE("the stand-ins see allocations") {
    if (cannot_count()) return;
    FaultyAllocator allocator;
    const Counts counts = count(allocator, [] {
        const auto a = std::make_unique<int[]>(100);
        void *volatile b = std::malloc(10);
        void *volatile c = std::aligned_alloc(64, 64);
        std::free(b);
        std::free(c);
    });
    CHECK(counts.ours == 3);
}

TEST_CASE("no allocation: reference device") {
    if (cannot_count()) return;
    for (const char *granularity : {"none", "selective", "full"}) {
        CAPTURE(granularity);
        Rig rig{{"recompute_granularity", granularity}};
        run(rig);
    }
    Rig rig{{"attention_backend", "unfused"}, {"cpu_offloading", "1"}, {"cpu_offloading_num_layers", "2"}};
    run(rig);
}

TEST_CASE("no allocation but oneDNN's own: cpu device") {
    if (cannot_count()) return;
    const int64_t before = inject::dnnl_calls();
    for (const char *dtype : {"f32", "bf16"}) {
        for (const char *granularity : {"none", "selective", "full"}) {
            CAPTURE(dtype);
            CAPTURE(granularity);
            Rig rig{{"recompute_granularity", granularity}, {"params_dtype", dtype}, {"activation_func", "swiglu"}};
            rig.desc.device = MDLM_DEVICE_CPU;
            run(rig);
            if (!inject::have_dnnl()) continue;
            Rig by_library{
                {"recompute_granularity", granularity}, {"params_dtype", dtype}, {"activation_func", "swiglu"}};
            by_library.desc.device = MDLM_DEVICE_CPU;
            by_library.desc.matmul = MDLM_MATMUL_ONEDNN;
            run(by_library);
        }
    }
    if (inject::have_dnnl()) CHECK(inject::dnnl_calls() > before);
}

TEST_CASE("no allocation for a prepared shape, whatever other blocks of the context ran since") {
    if (cannot_count()) return;
    for (const mdlm_matmul matmul : {MDLM_MATMUL_OWN, MDLM_MATMUL_ONEDNN}) {
        if (matmul == MDLM_MATMUL_ONEDNN && !inject::have_dnnl()) continue;
        CAPTURE(matmul);
        FaultyAllocator allocator;
        Rig rig;
        rig.desc.device = MDLM_DEVICE_CPU;
        rig.desc.matmul = matmul;
        REQUIRE_OK(rig.open());
        mdlm_batch shape = rig.batch;
        shape.seq_length = 5;
        REQUIRE_OK(mdlm_block_prepare(rig.block, &shape));
        mdlm_block *other = nullptr;
        REQUIRE_OK(mdlm_block_create(rig.context, &rig.config, &other));
        mdlm_shape large = rig.shape;
        large.seq_length = 40;
        REQUIRE_OK(mdlm_block_reserve(other, &large, nullptr));
        for (shape.seq_length = 9; shape.seq_length <= 40; ++shape.seq_length)
            REQUIRE_OK(mdlm_block_prepare(other, &shape));
        // The reserved shape and the other one; then sixteen others, of which one is used again and again.
        mdlm_status status = MDLM_OK;
        for (const int64_t seq : {8, 5}) {
            CAPTURE(seq);
            rig.batch.seq_length = seq;
            CHECK(count(allocator, [&] { status = rig.step(); }).ours == 0);
            REQUIRE_OK(status);
        }
        for (shape.seq_length = 6; shape.seq_length <= 7; ++shape.seq_length)
            for (shape.micro_batch_size = 1; shape.micro_batch_size <= 2; ++shape.micro_batch_size)
                REQUIRE_OK(mdlm_block_prepare(rig.block, &shape));
        mdlm_block_destroy(other);
        CHECK(count(allocator, [&] { status = rig.step(); }).ours == 0);
        REQUIRE_OK(status);
    }
}

TEST_CASE("no allocation for the sixteen shapes that were used last") {
    if (cannot_count()) return;
    FaultyAllocator allocator;
    Rig rig;
    rig.desc.device = MDLM_DEVICE_CPU;
    rig.shape.seq_length = 40;
    REQUIRE_OK(rig.open());
    mdlm_status status = MDLM_OK;
    // Lengths 1 .. 15 come and go, the first again after each.
    for (int64_t seq = 1; seq <= 30; ++seq) {
        for (const int64_t s : {seq, int64_t{1}}) {
            rig.batch.seq_length = s;
            const int64_t ours = count(allocator, [&] { status = rig.step(); }).ours;
            REQUIRE_OK(status);
            if (s == 1 && seq > 1) CHECK(ours == 0);
        }
    }
}

TEST_CASE("no allocation by either rank of a group") {
    if (cannot_count()) return;
    struct Settings {
        const char *sequence_parallel, *granularity, *distribute, *batch_first;
    };
    for (const Settings &settings : {Settings{"0", "none", "0", "0"},
                                     {"1", "selective", "0", "1"},
                                     {"0", "full", "1", "0"},
                                     {"1", "full", "0", "0"}}) {
        CAPTURE(settings.sequence_parallel);
        CAPTURE(settings.granularity);
        // Counting begins when both are ready, and ends when both are done.
        std::atomic<int> ready = 0, counted = 0, done = 0;
        std::atomic<int64_t> by_allocators = 0;
        const auto all = [](std::atomic<int> &count) {
            for (++count; count < 2;) std::this_thread::yield();
        };
        const std::string wrong = on_threads(2, [&](Rank &r) -> std::string {
            FaultyAllocator allocator;
            const mdlm_allocator table = allocator.table();
            Rig rig{{"recompute_granularity", settings.granularity},
                    {"recompute_method", *settings.granularity == 'f' ? "uniform" : "none"},
                    {"recompute_num_layers", *settings.granularity == 'f' ? "1" : "0"},
                    {"sequence_parallel", settings.sequence_parallel},
                    {"distribute_saved_activations", settings.distribute},
                    {"batch_first", settings.batch_first},
                    {"qk_layernorm", "1"}};
            join_group(rig, r);
            rig.desc.cancelled = [](void *) -> int32_t { return 0; };
            rig.desc.device_allocator = rig.desc.host_allocator = &table;
            const mdlm_status opened = rig.open();
            const int64_t before = allocator.calls;
            mdlm_status first = opened, second = opened;
            all(ready);
            if (r.rank == 0) {
                malloc_calls = malloc_calls_of_dnnl = 0;
                counting_malloc = true;
            }
            all(counted);
            float norm = 1;
            if (opened == MDLM_OK) {
                first = rig.step();
                second = rig.step();
                if (first == MDLM_OK && second == MDLM_OK)
                    second = mdlm_comm_all_reduce(r.comm, &norm, &norm, 1, MDLM_DTYPE_F32, MDLM_REDUCE_SUM, 60000);
            }
            all(done);
            counting_malloc = false;
            by_allocators += allocator.calls - before;
            EXPECT_SAID(first, MDLM_OK, "");
            EXPECT_SAID(second, MDLM_OK, "");
            EXPECT(norm == 2);
            return "";
        });
        CHECK(wrong == "");
        CHECK(malloc_calls == 0);
        CHECK(by_allocators == 0);
    }
}

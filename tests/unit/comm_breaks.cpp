// SPDX-License-Identifier: Apache-2.0
// How groups of threads end: ranks that call something else, stay away, abort or leave. Every other rank gets COMM, and
// on return nothing touches the buffers any more: tests give them back at once, and the build with the address
// sanitizer would tell.
#include <doctest/doctest.h>

#include <atomic>
#include <memory>

#include "support/ranks.hpp"

using namespace mdlm_test;

namespace {

// A collective on heap blocks that die as soon as it returns. kind 0 to 2: all_reduce, all_gather, reduce_scatter.
mdlm_status call(mdlm_comm *comm, int size, int kind, int64_t count, int64_t timeout_ms,
                 mdlm_dtype dtype = MDLM_DTYPE_F32, mdlm_reduce_op op = MDLM_REDUCE_SUM) {
    const auto part = static_cast<size_t>(count * 8), whole = part * static_cast<size_t>(size);
    const std::unique_ptr<char[]> send(new char[kind == 2 ? whole : part]()),
        recv(new char[kind == 1 ? whole : part]());
    if (kind == 0) return mdlm_comm_all_reduce(comm, send.get(), recv.get(), count, dtype, op, timeout_ms);
    if (kind == 1) return mdlm_comm_all_gather(comm, send.get(), recv.get(), count, dtype, timeout_ms);
    return mdlm_comm_reduce_scatter(comm, send.get(), recv.get(), count, dtype, op, timeout_ms);
}

// The group is over, on this rank too.
std::string is_over(Rank &r) {
    for (int kind = 0; kind < 3; ++kind) {
        const Soon soon;
        EXPECT_FAILS(call(r.comm, r.size, kind, 4, 60000), MDLM_ERROR_COMM, "abort");
        EXPECT(!soon.over());
    }
    return "";
}

}  // namespace

TEST_CASE("ranks that make different calls: all are told which") {
    struct Made {
        int kind;
        int64_t count;
        mdlm_dtype dtype;
        mdlm_reduce_op op;
        const char *said;
    };
    const Made usual = {0, 8, MDLM_DTYPE_F32, MDLM_REDUCE_SUM, ""};
    for (const Made &other : {Made{1, 8, MDLM_DTYPE_F32, MDLM_REDUCE_SUM, "all_gather of 8 f32"},
                              Made{2, 8, MDLM_DTYPE_F32, MDLM_REDUCE_SUM, "reduce_scatter of 8 f32"},
                              Made{0, 9, MDLM_DTYPE_F32, MDLM_REDUCE_SUM, "all_reduce of 9 f32"},
                              Made{0, 8, MDLM_DTYPE_BF16, MDLM_REDUCE_SUM, "all_reduce of 8 bf16"},
                              Made{0, 8, MDLM_DTYPE_F32, MDLM_REDUCE_MAX, "all_reduce (max) of 8 f32"}})
        for (const int size : {2, 3})
            for (int odd = 0; odd < size; ++odd) {
                CAPTURE(other.said);
                CAPTURE(size);
                CAPTURE(odd);
                const std::string wrong = on_threads(size, [&](Rank &r) -> std::string {
                    const Soon soon;
                    EXPECT_OK(call(r.comm, size, 0, 5, 60000));
                    const Made &m = r.rank == odd ? other : usual;
                    EXPECT_FAILS(call(r.comm, size, m.kind, m.count, 60000, m.dtype, m.op), MDLM_ERROR_COMM,
                                 other.said);
                    EXPECT(!soon.over());
                    return is_over(r);
                });
                CHECK(wrong == "");
            }
}

TEST_CASE("a silent rank: the others get COMM after the timeout, and are told who it was") {
    for (const int size : {2, 4})
        for (int kind = 0; kind < 3; ++kind) {
            CAPTURE(size);
            CAPTURE(kind);
            std::atomic<int> back = 0;
            const std::string wrong = on_threads(size, [&](Rank &r) -> std::string {
                const Soon soon;
                EXPECT_OK(call(r.comm, size, kind, 100, 60000));
                if (r.rank == size - 1) {
                    while (back < size - 1 && !soon.over()) sleep_ms(1);
                    EXPECT(!soon.over());
                    EXPECT_FAILS(call(r.comm, size, kind, 100, 60000), MDLM_ERROR_COMM, "did not come");
                    return is_over(r);
                }
                // Of several that wait, one may be late enough to be missed itself.
                const std::string name = "waited 100 ms for rank " + (size == 2 ? std::to_string(size - 1) : "");
                const mdlm_status status = call(r.comm, size, kind, 100, 100);
                ++back;
                EXPECT_SAID(status, MDLM_ERROR_COMM, name.c_str());
                EXPECT(!soon.over());
                return is_over(r);
            });
            CHECK(wrong == "");
        }
}

TEST_CASE("abort from a third thread ends the waiting of all ranks") {
    for (const int whose : {0, 1, 2}) {  // of a rank that waits, or of the one that does not come
        CAPTURE(whose);
        std::vector<mdlm_comm *> comms(3);
        REQUIRE_OK(mdlm_comm_create_threads(3, comms.data()));
        std::atomic<int> waiting = 0;
        std::atomic<bool> aborted = false;
        std::thread third([&] {
            while (waiting < 2) sleep_ms(1);
            sleep_ms(20);
            mdlm_comm_abort(comms[static_cast<size_t>(whose)]);
            aborted = true;
        });
        const std::string wrong = on_threads(comms, [&](Rank &r) -> std::string {
            if (r.rank == 2) return "";
            const Soon soon;
            ++waiting;
            const mdlm_status status = call(r.comm, 3, 0, 1000, 600000);
            while (!aborted) sleep_ms(1);  // a handle outlives the calls on it
            EXPECT_SAID(status, MDLM_ERROR_COMM, "aborted");
            EXPECT(!soon.over());
            EXPECT_OK(mdlm_comm_abort(r.comm));  // again: nothing
            return is_over(r);
        });
        third.join();
        CHECK(wrong == "");
    }
}

TEST_CASE("a rank that leaves: those that wait and those that come later get COMM") {
    std::atomic<int> waiting = 0;
    const std::string wrong = on_threads(4, [&](Rank &r) -> std::string {
        const Soon soon;
        EXPECT_OK(call(r.comm, 4, 1, 10, 60000));
        if (r.rank == 2) {
            while (waiting < 1) sleep_ms(1);
            sleep_ms(20);
            mdlm_comm_destroy(std::exchange(r.comm, nullptr));
            return "";
        }
        if (r.rank == 3) sleep_ms(60);
        ++waiting;
        EXPECT_FAILS(call(r.comm, 4, 0, 10, 600000), MDLM_ERROR_COMM, "rank 2 has left");
        EXPECT(!soon.over());
        return is_over(r);
    });
    CHECK(wrong == "");
}

TEST_CASE("who has finished the last collective may leave at once") {
    for (int i = 0; i < 200; ++i) {
        const std::string wrong = on_threads(3, [&](Rank &r) -> std::string {
            EXPECT_OK(call(r.comm, 3, i % 3, 20, 60000));
            mdlm_comm_destroy(std::exchange(r.comm, nullptr));
            return "";
        });
        CHECK(wrong == "");
    }
}

TEST_CASE("buffers are the caller's again, whenever a group breaks up") {
    // Large parts, and an end that comes while ranks are inside them: by a timeout of a millisecond, by an abort, by
    // leaving.
    for (int i = 0; i < 27; ++i) {
        CAPTURE(i);
        const int how = i % 3, kind = i / 3 % 3;
        const std::string wrong = on_threads(3, [&](Rank &r) -> std::string {
            for (int n = 0; n < 200; ++n) {
                if (how == 1 && r.rank == 1 && n == 2) {
                    sleep_ms(i / 9);
                    EXPECT_OK(mdlm_comm_abort(r.comm));
                }
                if (how == 2 && r.rank == 1 && n == 2) {
                    mdlm_comm_destroy(std::exchange(r.comm, nullptr));
                    return "";
                }
                if (how == 0 && r.rank == 2 && n == 3) sleep_ms(5);
                const mdlm_status status = call(r.comm, 3, kind, 60000, how == 0 && n > 1 ? 1 : 60000);
                if (status == MDLM_OK) continue;
                EXPECT_SAID(status, MDLM_ERROR_COMM, "rank");
                return is_over(r);
            }
            return "the group never broke up";
        });
        CHECK(wrong == "");
    }
}

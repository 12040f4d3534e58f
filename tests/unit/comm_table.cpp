// SPDX-License-Identifier: Apache-2.0
// Communicators of the caller's own functions: what they are given, what becomes of their errors, and when they are let
// go.
#include <doctest/doctest.h>

#include <atomic>
#include <cstring>

#include "support/rank_cases.hpp"
#include "support/rank_rig.hpp"

using namespace mdlm_test;

namespace {

// A life of a block up to the first failure; "" when the statuses are as failing says, the line has word in it, and all
// can be destroyed.
std::string step_on(Rank &r, bool failing, const char *word, const char *sequence_parallel, int64_t timeout_ms = 60000,
                    const char *or_word = nullptr) {
    Rig rig{{"recompute_granularity", "full"}, {"qk_layernorm", "1"}, {"sequence_parallel", sequence_parallel}};
    join_group(rig, r, timeout_ms);
    const Soon soon;
    mdlm_status status = rig.open();
    if (status == MDLM_OK) status = rig.step();
    EXPECT(!soon.over());
    if (!failing) {
        EXPECT_SAID(status, MDLM_OK, "");
        return "";
    }
    if (or_word != nullptr && std::strstr(mdlm_last_error(), or_word) != nullptr) word = or_word;
    EXPECT_SAID(status, MDLM_ERROR_COMM, word);
    // The group is over: whatever is called next says so, and does not wait.
    if (rig.block != nullptr)
        EXPECT_FAILS(mdlm_block_reserve(rig.block, &rig.shape, nullptr), MDLM_ERROR_COMM, "abort");
    EXPECT(!soon.over());
    return "";
}

}  // namespace

TEST_CASE("collectives of the caller's communicator") {
    for (const int size : {1, 3}) {
        int destroyed[3] = {};
        const std::string wrong = on_threads(size, [&](Rank &r) -> std::string {
            OwnComm own(r);
            own.destroyed = &destroyed[r.rank];
            EXPECT_OK(own.take());
            return collectives(r.comm, r.rank, r.size);
        });
        CHECK(wrong == "");
        for (int i = 0; i < size; ++i) CHECK(destroyed[i] == 1);
    }
}

TEST_CASE("what the caller's functions are given") {
    const std::string wrong = on_threads(2, [&](Rank &r) -> std::string {
        OwnComm own(r);
        EXPECT_OK(own.take());
        float data[4] = {};
        EXPECT_OK(mdlm_comm_all_reduce(r.comm, data, data, 3, MDLM_DTYPE_F32, MDLM_REDUCE_MAX, 0));
        EXPECT(own.count == 3);
        EXPECT(own.dtype == MDLM_DTYPE_F32);
        EXPECT(own.op == MDLM_REDUCE_MAX);
        EXPECT(own.timeout_ms == 600000);
        EXPECT(own.stream == nullptr);
        EXPECT_OK(mdlm_comm_reduce_scatter(r.comm, data, data + 2, 1, MDLM_DTYPE_F32, MDLM_REDUCE_SUM, 4321));
        EXPECT(own.count == 1);
        EXPECT(own.timeout_ms == 4321);
        EXPECT_OK(mdlm_comm_all_gather(r.comm, data, data + 2, 1, MDLM_DTYPE_F32, 60001));
        EXPECT(own.timeout_ms == 60001);
        Rig rig;
        join_group(rig, r, 54321);
        EXPECT_OK(rig.open());
        EXPECT(own.timeout_ms == 54321);
        EXPECT(own.calls > 3);
        EXPECT_OK(rig.step());
        rig.close();
        mdlm_comm_destroy(std::exchange(r.comm, nullptr));
        EXPECT(own.inner == nullptr);
        return "";
    });
    CHECK(wrong == "");
}

TEST_CASE("a call that went well leaves the error line as it was") {
    const std::string wrong = on_threads(2, [&](Rank &r) -> std::string {
        OwnComm own(r);
        own.inside = [] { mdlm_set_last_error("a remark of a function that goes well"); };
        EXPECT_OK(own.take());
        mdlm_set_last_error("of before");
        float data[4] = {};
        EXPECT(mdlm_comm_all_reduce(r.comm, data, data, 3, MDLM_DTYPE_F32, MDLM_REDUCE_MAX, 0) == MDLM_OK);
        EXPECT(std::string(mdlm_last_error()) == "of before");
        return "";
    });
    CHECK(wrong == "");
}

TEST_CASE("the caller's function fails, at every call of a step") {
    for (const char *sequence_parallel : {"0", "1"}) {
        CAPTURE(sequence_parallel);
        std::atomic<int> calls = 0;
        std::string wrong = on_threads(2, [&](Rank &r) -> std::string {
            OwnComm own(r);
            EXPECT_OK(own.take());
            std::string bad = step_on(r, false, "", sequence_parallel);
            calls = own.calls;
            return bad;
        });
        REQUIRE(wrong == "");
        REQUIRE(calls > 10);
        for (int n = 0; n < calls; ++n) {
            CAPTURE(n);
            int destroyed[2] = {};
            wrong = on_threads(2, [&](Rank &r) -> std::string {
                OwnComm own(r);
                own.destroyed = &destroyed[r.rank];
                if (r.rank == n % 2) own.fail_at = n;
                if (n % 3 == 1) own.text = nullptr;
                EXPECT_OK(own.take());
                const char *word = r.rank != n % 2 ? "abort"
                                   : n % 3 == 1    ? "12345 (unknown status)"
                                                   : "the wire is cut";
                std::string bad = step_on(r, true, word, sequence_parallel);
                EXPECT(own.aborts == 1);
                return bad;
            });
            CHECK(wrong == "");
            CHECK(destroyed[0] == 1);
            CHECK(destroyed[1] == 1);
        }
    }
}

TEST_CASE("without an abort of the caller's, the others wait for their timeout") {
    std::atomic<bool> over = false;
    const std::string wrong = on_threads(2, [&](Rank &r) -> std::string {
        OwnComm own(r);
        if (r.rank == 1) own.fail_at = 9;
        EXPECT_OK(own.take(false));
        // On a slow machine, the one that would fail may have to wait for too long before it does.
        std::string bad = step_on(r, true, "did not come", "0", 300, r.rank == 1 ? "the wire is cut" : nullptr);
        if (r.rank == 0) over = true;
        while (!over) sleep_ms(1);  // the group below has not been left
        EXPECT(own.aborts == 0);
        return bad;
    });
    CHECK(wrong == "");
}

TEST_CASE(
    "a second collective at once is BUSY, from another thread and from the function itself, and the first goes on") {
    const std::string wrong = on_threads(2, [&](Rank &r) -> std::string {
        OwnComm own(r);
        std::string seen = "not called";
        own.inside = [&] {
            float data[2] = {};
            const mdlm_status status = mdlm_comm_all_reduce(r.comm, data, data, 2, MDLM_DTYPE_F32, MDLM_REDUCE_SUM, 0);
            seen = wrong_with(status, MDLM_ERROR_BUSY, "another collective", "within");
            std::thread([&] {
                mdlm_set_last_error("");
                const mdlm_status other = mdlm_comm_all_gather(r.comm, data, data + 1, 1, MDLM_DTYPE_F32, 0);
                if (seen.empty()) seen = wrong_with(other, MDLM_ERROR_BUSY, "another collective", "another thread");
            }).join();
        };
        EXPECT_OK(own.take());
        float one = 1, two = 0;
        EXPECT_OK(mdlm_comm_all_reduce(r.comm, &one, &two, 1, MDLM_DTYPE_F32, MDLM_REDUCE_SUM, 0));
        EXPECT(two == 2);
        EXPECT(seen == "");
        EXPECT_OK(mdlm_comm_all_reduce(r.comm, &one, &two, 1, MDLM_DTYPE_F32, MDLM_REDUCE_SUM, 0));
        return "";
    });
    CHECK(wrong == "");
}

TEST_CASE("tables that cannot be; destroy is not called for them") {
    Rank rank{nullptr, 0, 2};
    OwnComm own(rank);
    int destroyed = 0;
    own.destroyed = &destroyed;
    const mdlm_comm_table good = own.table();
    mdlm_comm *comm = nullptr;
    const auto refused = [&](const char *word, const std::function<void(mdlm_comm_table &)> &change) {
        mdlm_comm_table table = good;
        change(table);
        CHECK_FAILS(mdlm_comm_create(&table, &comm), MDLM_ERROR_ARGUMENT, word);
    };
    refused("table.size = 0", [](auto &t) { t.size = 0; });
    refused("table.size = -1", [](auto &t) { t.size = -1; });
    refused("table.size = 65537", [](auto &t) { t.size = 65537; });
    refused("table.rank = 2", [](auto &t) { t.rank = 2; });
    refused("table.rank = -1", [](auto &t) { t.rank = -1; });
    refused("table.memory_space = 2", [](auto &t) { t.memory_space = 2; });
    refused("table.memory_space = -1", [](auto &t) { t.memory_space = -1; });
    refused("table.reserved = 1", [](auto &t) { t.reserved = 1; });
    refused("table.all_reduce is NULL", [](auto &t) { t.all_reduce = nullptr; });
    refused("table.all_gather is NULL", [](auto &t) { t.all_gather = nullptr; });
    refused("table.reduce_scatter is NULL", [](auto &t) { t.reduce_scatter = nullptr; });
    refused("struct_size", [](auto &t) { t.struct_size = 3; });
    refused("table.all_reduce is NULL", [](auto &t) { t.struct_size = offsetof(mdlm_comm_table, all_reduce); });
    CHECK_FAILS(mdlm_comm_create(nullptr, &comm), MDLM_ERROR_ARGUMENT, "table");
    CHECK_FAILS(mdlm_comm_create(&good, nullptr), MDLM_ERROR_ARGUMENT, "out");
    CHECK(comm == nullptr);
    CHECK(destroyed == 0);
    CHECK(own.calls == 0);
}

// SPDX-License-Identifier: Apache-2.0
// Communicators and contexts: arguments, who may use one, and every order of letting go.
#include <doctest/doctest.h>

#include <algorithm>
#include <array>
#include <cstdint>

#include "support/rank_rig.hpp"

using namespace mdlm_test;

TEST_CASE("arguments of functions on communicators") {
    mdlm_comm *comms[3] = {};
    CHECK_FAILS(mdlm_comm_create_threads(2, nullptr), MDLM_ERROR_ARGUMENT, "ranks");
    for (const int32_t size : {0, -1, 1025, INT32_MIN, INT32_MAX})
        CHECK_FAILS(mdlm_comm_create_threads(size, comms), MDLM_ERROR_ARGUMENT, "size");
    CHECK(comms[0] == nullptr);
    REQUIRE_OK(mdlm_comm_create_threads(2, comms));
    CHECK(comms[2] == nullptr);
    mdlm_comm *c = comms[0];
    float data[4] = {};
    CHECK_FAILS(mdlm_comm_all_reduce(nullptr, data, data, 1, MDLM_DTYPE_F32, MDLM_REDUCE_SUM, 1), MDLM_ERROR_ARGUMENT,
                "comm");
    CHECK_FAILS(mdlm_comm_all_gather(nullptr, data, data, 1, MDLM_DTYPE_F32, 1), MDLM_ERROR_ARGUMENT, "comm");
    CHECK_FAILS(mdlm_comm_reduce_scatter(nullptr, data, data, 1, MDLM_DTYPE_F32, MDLM_REDUCE_SUM, 1),
                MDLM_ERROR_ARGUMENT, "comm");
    CHECK_FAILS(mdlm_comm_all_reduce(c, nullptr, data, 1, MDLM_DTYPE_F32, MDLM_REDUCE_SUM, 1), MDLM_ERROR_ARGUMENT,
                "send");
    CHECK_FAILS(mdlm_comm_all_reduce(c, data, nullptr, 1, MDLM_DTYPE_F32, MDLM_REDUCE_SUM, 1), MDLM_ERROR_ARGUMENT,
                "recv");
    CHECK_FAILS(mdlm_comm_all_gather(c, nullptr, data, 1, MDLM_DTYPE_F32, 1), MDLM_ERROR_ARGUMENT, "send");
    CHECK_FAILS(mdlm_comm_all_gather(c, data, nullptr, 1, MDLM_DTYPE_F32, 1), MDLM_ERROR_ARGUMENT, "recv");
    CHECK_FAILS(mdlm_comm_reduce_scatter(c, nullptr, data, 1, MDLM_DTYPE_F32, MDLM_REDUCE_SUM, 1), MDLM_ERROR_ARGUMENT,
                "send");
    CHECK_FAILS(mdlm_comm_reduce_scatter(c, data, nullptr, 1, MDLM_DTYPE_F32, MDLM_REDUCE_SUM, 1), MDLM_ERROR_ARGUMENT,
                "recv");
    const auto reduce = [&](int64_t count, mdlm_dtype dtype, mdlm_reduce_op op, int64_t timeout_ms) {
        return mdlm_comm_all_reduce(c, data, data, count, dtype, op, timeout_ms);
    };
    CHECK_FAILS(reduce(-1, MDLM_DTYPE_F32, MDLM_REDUCE_SUM, 1), MDLM_ERROR_ARGUMENT, "count = -1");
    for (const mdlm_dtype dtype : {0, -1, 5, 99})
        CHECK_FAILS(reduce(1, dtype, MDLM_REDUCE_SUM, 1), MDLM_ERROR_ARGUMENT, "dtype");
    for (const mdlm_reduce_op op : {-1, 2}) CHECK_FAILS(reduce(1, MDLM_DTYPE_F32, op, 1), MDLM_ERROR_ARGUMENT, "op");
    for (const int64_t ms : {int64_t{-1}, int64_t{INT32_MAX} + 1, INT64_MAX})
        CHECK_FAILS(reduce(1, MDLM_DTYPE_F32, MDLM_REDUCE_SUM, ms), MDLM_ERROR_ARGUMENT, "timeout_ms");
    CHECK_FAILS(reduce(INT64_MAX / 4, MDLM_DTYPE_F32, MDLM_REDUCE_SUM, 1), MDLM_ERROR_OVERFLOW, "63");
    CHECK_FAILS(mdlm_comm_rank(nullptr, nullptr, nullptr), MDLM_ERROR_ARGUMENT, "comm");
    CHECK_FAILS(mdlm_comm_abort(nullptr), MDLM_ERROR_ARGUMENT, "comm");
    mdlm_comm_destroy(nullptr);
    // Nothing of that has disturbed the group.
    const std::string wrong = on_threads({comms[0], comms[1]}, [](Rank &r) -> std::string {
        float one = 1;
        EXPECT_OK(mdlm_comm_all_reduce(r.comm, &one, &one, 1, MDLM_DTYPE_F32, MDLM_REDUCE_SUM, 60000));
        EXPECT(one == 2);
        return "";
    });
    CHECK(wrong == "");
}

TEST_CASE("a context on a communicator: what is refused") {
    mdlm_comm *one = nullptr;
    REQUIRE_OK(mdlm_comm_create_threads(1, &one));
    Rig rig, other;
    rig.desc.comm = other.desc.comm = one;
    for (const int64_t ms : {int64_t{-1}, int64_t{INT32_MAX} + 1}) {
        rig.desc.comm_timeout_ms = ms;
        CHECK_FAILS(mdlm_context_create(&rig.desc, &rig.context), MDLM_ERROR_ARGUMENT, "comm_timeout_ms");
    }
    rig.desc.comm_timeout_ms = INT32_MAX;
    CHECK(rig.context == nullptr);
    rig.desc.device = 99;
    CHECK_FAILS(mdlm_context_create(&rig.desc, &rig.context), MDLM_ERROR_ARGUMENT,
                "device");  // and has not kept the communicator
    rig.desc.device = MDLM_DEVICE_REFERENCE;
    REQUIRE_OK(rig.open());
    REQUIRE_OK(rig.step());
    const uint64_t good = rig.digest();
    CHECK_FAILS(mdlm_context_create(&other.desc, &other.context), MDLM_ERROR_STATE, "in use by another context");
    CHECK(other.context == nullptr);
    CHECK_OK(rig.step());
    CHECK(rig.digest() == good);
    rig.close();
    CHECK_OK(other.open());
    CHECK_OK(other.step());
    CHECK(other.digest() == good);
    mdlm_comm_destroy(one);  // the context keeps it
    CHECK_OK(other.step());
    CHECK(other.digest() == good);
    Rig alone;
    alone.config.tensor_model_parallel_size = 2;
    alone.config.num_attention_heads = 4;
    CHECK_FAILS(alone.open(), MDLM_ERROR_UNSUPPORTED, "tensor_model_parallel_size");
}

TEST_CASE("a block of another t than the group's is refused on its rank") {
    const std::string wrong = on_threads(2, [](Rank &r) -> std::string {
        Rig rig;
        join_group(rig, r);
        rig.config.tensor_model_parallel_size = 4;
        EXPECT_FAILS(rig.open(), MDLM_ERROR_UNSUPPORTED, "tensor_model_parallel_size = 4: expected 2");
        rig.config.tensor_model_parallel_size = 2;
        EXPECT_OK(mdlm_block_create(rig.context, &rig.config, &rig.block));
        EXPECT_OK(mdlm_block_reserve(rig.block, &rig.shape, nullptr));
        return "";
    });
    CHECK(wrong == "");
}

TEST_CASE("communicator, context, block and tape of a rank are destroyed in every order") {
    std::array<int, 4> order = {0, 1, 2, 3};
    int orders = 0;
    do {
        CAPTURE(order[0]);
        CAPTURE(order[1]);
        CAPTURE(order[2]);
        CAPTURE(order[3]);
        int destroyed[2] = {};
        const std::string wrong = on_threads(2, [&](Rank &r) -> std::string {
            OwnComm own(r);
            own.destroyed = &destroyed[r.rank];
            EXPECT_OK(own.take());
            Rig rig;
            join_group(rig, r);
            EXPECT_OK(rig.open());
            EXPECT_OK(rig.forward());
            int left = 4;
            for (const int which : order) {
                EXPECT(destroyed[r.rank] == 0);
                if (which == 0) mdlm_comm_destroy(std::exchange(r.comm, nullptr));
                if (which == 1) mdlm_context_destroy(std::exchange(rig.context, nullptr));
                if (which == 2) mdlm_block_destroy(std::exchange(rig.block, nullptr));
                if (which == 3) mdlm_tape_destroy(std::exchange(rig.tape, nullptr));
                --left;
                if (rig.block != nullptr && rig.tape != nullptr) {
                    EXPECT_OK(rig.backward());
                    EXPECT_OK(rig.forward());
                }
            }
            EXPECT(left == 0);
            EXPECT(destroyed[r.rank] == 1);
            return "";
        });
        CHECK(wrong == "");
        ++orders;
    } while (std::next_permutation(order.begin(), order.end()));
    CHECK(orders == 24);
}

TEST_CASE("a communicator is used by one context after another, and by the caller between") {
    const std::string wrong = on_threads(2, [](Rank &r) -> std::string {
        uint64_t first = 0;
        for (int i = 0; i < 3; ++i) {
            Rig rig;
            join_group(rig, r);
            EXPECT_OK(rig.open());
            EXPECT_OK(rig.step());
            if (i == 0) first = rig.digest();
            EXPECT(rig.digest() == first);
            float one = 1;
            EXPECT_OK(mdlm_comm_all_reduce(r.comm, &one, &one, 1, MDLM_DTYPE_F32, MDLM_REDUCE_SUM, 60000));
            EXPECT(one == 2);
        }
        return "";
    });
    CHECK(wrong == "");
}

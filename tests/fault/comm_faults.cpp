// SPDX-License-Identifier: Apache-2.0
// Every operator new of communicators and of a group's calls fails once: a status, nothing leaks, out is as it was; a
// rank whose allocation fails tells the others, and all go on.
#include <doctest/doctest.h>

#include <atomic>
#include <cstring>

#include "fault/inject.hpp"
#include "support/rank_rig.hpp"

using namespace mdlm_test;

namespace {

// make(out) fails with MEMORY at each of its allocations and works without; destroy lets go of what it made.
int64_t strike(const std::function<mdlm_status()> &make, const std::function<bool()> &untouched,
               const std::function<void()> &destroy) {
    for (int warm = 0; warm < 2; ++warm) {
        REQUIRE_OK(make());
        destroy();
    }
    const int64_t alive = inject::live_blocks();
    inject::arm(Fault::heap, INT64_MAX, false);
    const mdlm_status calm = make();
    const int64_t places = inject::calls();
    inject::disarm();
    REQUIRE_OK(calm);
    destroy();
    CHECK(inject::live_blocks() == alive);
    for (int64_t n = 1; n <= places; ++n) {
        CAPTURE(n);
        mdlm_set_last_error("");
        inject::arm(Fault::heap, n, false);
        const mdlm_status status = make();
        inject::disarm();
        CHECK(status == MDLM_ERROR_MEMORY);
        CHECK(wrong_with(mdlm_last_error(), "memory") == "");
        CHECK(untouched());
        CHECK(inject::live_blocks() == alive);
    }
    REQUIRE_OK(make());
    destroy();
    return places;
}

// A call of the group on two ranks, of which the second one's allocations fail one after the other. "" or what is
// wrong.
std::string strike_rank(const Rank &r, std::atomic<int64_t> &places, const char *name,
                        const std::function<mdlm_status()> &call) {
    inject::spared = r.rank != 1;
    float sign = 0;
    const auto meet = [&] {
        return mdlm_comm_all_reduce(r.comm, &sign, &sign, 1, MDLM_DTYPE_F32, MDLM_REDUCE_MAX, 60000);
    };
    for (int64_t n = 0; n == 0 || n <= places; ++n) {  // first without a fault, to count
        EXPECT_OK(meet());
        int64_t alive = 0;
        if (r.rank == 1) {
            alive = inject::live_blocks();
            inject::arm(Fault::heap, n == 0 ? INT64_MAX : n, false);
        }
        EXPECT_OK(meet());
        mdlm_set_last_error("");
        const Soon soon;
        const mdlm_status status = call();
        const bool over = soon.over();
        char line[512];
        std::strcpy(line, mdlm_last_error());
        EXPECT(meet() == MDLM_OK);
        if (r.rank == 1) {
            if (n == 0) places = inject::calls();
            inject::disarm();
            if (status != MDLM_OK) EXPECT(inject::live_blocks() == alive);  // the other rank waits
        }
        EXPECT_OK(meet());
        EXPECT(!over);
        mdlm_set_last_error(line);
        if (n == 0 || status == MDLM_OK) {  // an allocation that the call can do without
            EXPECT_SAID(status, MDLM_OK, "");
            EXPECT(n == 0 || inject::only_nothrow_struck());
        } else if (r.rank == 1) {
            EXPECT_SAID(status, MDLM_ERROR_MEMORY, "");
        } else {
            EXPECT_SAID(status, MDLM_ERROR_COMM,
                        (std::string("rank 1 failed in ") + name + " with MDLM_ERROR_MEMORY").c_str());
        }
    }
    EXPECT_OK(meet());
    return "";
}

}  // namespace

TEST_CASE("every operator new fails: communicators") {
    Rank rank{nullptr, 0, 2};
    OwnComm own(rank);
    int destroyed = 0;
    own.destroyed = &destroyed;
    const mdlm_comm_table table = own.table();
    int made = 0;
    CHECK(strike([&] { return mdlm_comm_create(&table, &rank.comm); },
                 [&] { return rank.comm == nullptr && destroyed == made; },
                 [&] {
                     mdlm_comm_destroy(std::exchange(rank.comm, nullptr));
                     ++made;
                 }) >= 2);
    CHECK(destroyed == made);
    mdlm_comm *comms[3] = {};
    CHECK(strike([&] { return mdlm_comm_create_threads(3, comms); },
                 [&] { return comms[0] == nullptr && comms[1] == nullptr && comms[2] == nullptr; },
                 [&] {
                     for (mdlm_comm *&c : comms) mdlm_comm_destroy(std::exchange(c, nullptr));
                 }) >= 5);
}

TEST_CASE("every operator new fails: a context on a communicator, which stays free") {
    mdlm_comm *comms[2] = {};
    REQUIRE_OK(mdlm_comm_create_threads(2, comms));
    mdlm_context_desc desc = MDLM_CONTEXT_DESC_INIT;
    desc.comm = comms[1];
    desc.device = MDLM_DEVICE_REFERENCE;
    mdlm_context *context = nullptr;
    CHECK(strike([&] { return mdlm_context_create(&desc, &context); }, [&] { return context == nullptr; },
                 [&] { mdlm_context_destroy(std::exchange(context, nullptr)); }) >= 4);
    for (mdlm_comm *c : comms) mdlm_comm_destroy(c);
}

TEST_CASE("every operator new of one rank fails: reserve, gather, forward and backward of a group") {
    std::atomic<int64_t> reserve = 0, gather = 0, running = 0;
    const std::string wrong = on_threads(2, [&](Rank &r) -> std::string {
        Rig rig{{"recompute_granularity", "selective"}, {"sequence_parallel", "1"}};
        join_group(rig, r);
        EXPECT_OK(rig.open());
        EXPECT_OK(rig.step());
        const uint64_t good = rig.digest();
        std::vector<float> host(16 * 64);
        int64_t fc1 = 0;
        EXPECT_OK(mdlm_param_find(rig.block, "layers.0.mlp.linear_fc1.weight", &fc1));
        std::string bad = strike_rank(r, gather, "mdlm_param_grad_gather", [&] {
            return mdlm_param_grad_gather(rig.block, fc1, MDLM_DTYPE_F32, host.data(), host.size() * sizeof(float));
        });
        if (!bad.empty()) return bad;
        bad = strike_rank(r, running, "mdlm_block_forward", [&] {
            mdlm_tape_reset(rig.tape);
            return rig.step();
        });
        if (!bad.empty()) return bad;
        EXPECT(rig.digest() == good);
        mdlm_tape_destroy(std::exchange(rig.tape, nullptr));
        bad = strike_rank(r, reserve, "mdlm_block_reserve",
                          [&] { return mdlm_block_reserve(rig.block, &rig.shape, nullptr); });
        if (!bad.empty()) return bad;
        EXPECT_OK(mdlm_tape_create(rig.block, &rig.tape));
        EXPECT_OK(rig.step());
        EXPECT(rig.digest() == good);
        return "";
    });
    CHECK(wrong == "");
    CHECK(reserve > 100);
    CHECK(gather == 2);
    CHECK(running == 0);
}

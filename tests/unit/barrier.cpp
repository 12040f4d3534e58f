// SPDX-License-Identifier: Apache-2.0
// Ranks that wait for each other, preempted where it matters.
#include "comm/barrier.hpp"

#include <doctest/doctest.h>

#include <functional>
#include <thread>

using namespace mdlm;

namespace {

// "" when the rank met the others, else what it was told.
template <class M>
std::string met(M &epoch, int32_t rank, int64_t timeout_ms = 60000) {
    try {
        epoch.arrive_and_wait(rank, timeout_ms);
    } catch (const Error &e) {
        return e.what();
    }
    return "";
}

}  // namespace

TEST_CASE("epoch: who is preempted between two looks is not told of an end that came after the epoch") {
    for (int i = 0; i < 20; ++i) {
        // Rank 0 waits. Between its look at whether all have come and the next, at whether the group has ended, rank 1
        // comes, goes on and leaves.
        std::atomic<bool> looks{false}, left{false};
        const std::function<void()> look = [&] {
            looks = true;
            while (!left) std::this_thread::yield();
        };
        Barrier<std::function<void()>> epoch(2, true, look);
        std::string other;
        std::thread last([&] {
            while (!looks) std::this_thread::yield();
            other = met(epoch, 1);
            epoch.abort("rank %d has left the group", 1, 0, 0);
            left = true;
        });
        const std::string waiting = met(epoch, 0);
        last.join();
        CHECK(looks);
        CHECK(waiting == "");
        CHECK(other == "");
        CHECK(met(epoch, 0) == "rank 1 has left the group");
    }
}

TEST_CASE("epoch: all ranks of a epoch return, or none does, whenever the group ends") {
    // An end from a third thread at every moment of a epoch, a third of them as soon as one rank is back; the last
    // rank to come must not return where another was refused.
    int ended = 0, took_place = 0;
    for (int i = 0; i < 150; ++i) {
        Barrier<> epoch(2, i % 2 == 0);
        std::atomic<int> ready{0}, back{0};
        const auto start = [&](int spin) {
            ++ready;
            while (ready < 3) std::this_thread::yield();
            for (int n = 0; n < spin; ++n) asm volatile("");
        };
        std::string said[2];
        std::thread other([&] { start(i * 7 % 200), said[1] = met(epoch, 1), ++back; });
        std::thread third([&] {
            start(i * 3 % 400);
            while (i % 3 == 0 && back == 0) std::this_thread::yield();
            epoch.abort("ended", 0, 0, 0);
        });
        start(i * 5 % 200), said[0] = met(epoch, 0), ++back;
        other.join(), third.join();
        if (said[0] != said[1]) FAIL("rank 0: '" << said[0] << "', rank 1: '" << said[1] << "'");
        if (i % 3 == 0) CHECK(said[0] == "");
        ++(said[0].empty() ? took_place : ended);
    }
    MESSAGE("epochs: ", took_place, " took place, ", ended, " did not");
    CHECK(took_place >= 50);
}

TEST_CASE("epoch: who waited too long says for whom, and nothing breaks where the others come in that moment") {
    for (int i = 0; i < 200; ++i) {
        Barrier<> epoch(2, false);
        std::string said[2];
        std::thread other([&] {
            std::this_thread::sleep_for(std::chrono::microseconds(900 + i));
            said[1] = met(epoch, 1);
        });
        said[0] = met(epoch, 0, 1);
        other.join();
        CHECK(said[0] == said[1]);
        if (!said[0].empty()) CHECK(said[0] == "rank 0 waited 1 ms for rank 1, which did not come");
        CHECK(epoch.broken() == !said[0].empty());
    }
}

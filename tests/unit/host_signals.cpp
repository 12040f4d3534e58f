// SPDX-License-Identifier: Apache-2.0
// Signals of the process run on the host's threads, never on workers; the host's mask is its own.
#include <doctest/doctest.h>

#include <pthread.h>
#include <signal.h>
#include <unistd.h>

#include <atomic>

#include "support/checks.hpp"
#include "support/ranks.hpp"
#include "support/rig.hpp"

using namespace mdlm_test;

namespace {

std::atomic<int> handled{0}, elsewhere{0};
pthread_t host;

void handler(int) {
    ++handled;
    if (!pthread_equal(pthread_self(), host)) ++elsewhere;
}

}  // namespace

TEST_CASE("signals: none that is sent to the process runs on a worker") {
    host = pthread_self();
    handled = elsewhere = 0;
    const int signals[] = {SIGUSR1, SIGTERM, SIGALRM, SIGCHLD, SIGPROF, SIGRTMIN + 3};
    struct sigaction action {
    }, before[std::size(signals)];
    action.sa_handler = handler;
    sigset_t blocked, mask;
    sigemptyset(&blocked);
    for (size_t i = 0; i < std::size(signals); ++i)
        sigaction(signals[i], &action, &before[i]), sigaddset(&blocked, signals[i]);
    sigset_t kept, after;
    pthread_sigmask(SIG_SETMASK, nullptr, &kept);
    Rig rig;
    rig.desc.device = MDLM_DEVICE_CPU;
    rig.desc.num_threads = 4;
    const mdlm_status opened = rig.open();
    pthread_sigmask(SIG_SETMASK, nullptr, &after);
    CHECK(opened == MDLM_OK);
    for (int s = 1; s < SIGRTMAX; ++s) CHECK(sigismember(&kept, s) == sigismember(&after, s));

    // This thread blocks them, so that a worker that does not is the only one that they can run on.
    pthread_sigmask(SIG_BLOCK, &blocked, &mask);
    int status = MDLM_OK;
    for (const int s : signals) {
        kill(getpid(), s);
        if (status == MDLM_OK) status = rig.step();
        sleep_ms(2);
    }
    const int early = handled;
    pthread_sigmask(SIG_SETMASK, &mask, nullptr);
    const int late = handled;
    for (size_t i = 0; i < std::size(signals); ++i) sigaction(signals[i], &before[i], nullptr);
    CHECK(status == MDLM_OK);
    CHECK(early == 0);
    CHECK(late == static_cast<int>(std::size(signals)));
    CHECK(elsewhere == 0);
}

// SPDX-License-Identifier: Apache-2.0
// A child that fork makes, for tests: its body returns "" or what is wrong. A child that hangs is killed after a while
// and said to hang.
#pragma once
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <string>
#include <thread>

namespace mdlm_test {

template <class Body>
std::string in_child(Body &&body, int seconds = 60) {
    int ends[2];
    if (pipe(ends) != 0) return "no pipe";
    const pid_t child = fork();
    if (child == 0) {
        close(ends[0]);
        const std::string wrong = body();
        const bool written = write(ends[1], wrong.data(), wrong.size()) == static_cast<ssize_t>(wrong.size());
        _exit(written ? 0 : 1);
    }
    close(ends[1]);
    if (child < 0) return close(ends[0]), "no child";
    int status = 0;
    const auto until = std::chrono::steady_clock::now() + std::chrono::seconds(seconds);
    pid_t ended = 0;
    while ((ended = waitpid(child, &status, WNOHANG)) == 0 && std::chrono::steady_clock::now() < until)
        std::this_thread::sleep_for(std::chrono::milliseconds(1));
    if (ended == 0) {
        kill(child, SIGKILL);
        waitpid(child, &status, 0);
        close(ends[0]);
        return "the child hangs";
    }
    std::string wrong;
    char part[512];
    for (ssize_t n; (n = read(ends[0], part, sizeof part)) > 0;) wrong.append(part, static_cast<size_t>(n));
    close(ends[0]);
    if (wrong.empty() && (!WIFEXITED(status) || WEXITSTATUS(status) != 0))
        wrong = "the child ended with status " + std::to_string(status);
    return wrong;
}

}  // namespace mdlm_test

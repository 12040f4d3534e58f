// SPDX-License-Identifier: Apache-2.0
// Runs the program `mdlm plan` and collects what it says.
#pragma once
#include <doctest/doctest.h>

#include <cstdlib>
#include <string>
#include <sys/wait.h>
#include <unistd.h>
#include <vector>

#include "example.hpp"

namespace planner_test {

struct Ended {
    int status;
    std::string out, err;
};

inline std::string contents(std::FILE *file) {
    std::rewind(file);
    std::string text;
    for (int c; (c = std::fgetc(file)) != EOF;) text += static_cast<char>(c);
    return text;
}

inline Ended run(std::vector<std::string> words, const std::string &input = example) {
    const char *other = std::getenv("MDLM_TOOL");  // an installed one, say
    words.insert(words.begin(), {other != nullptr ? other : MDLM_TOOL_PATH, "plan"});
    std::vector<char *> argv;
    for (std::string &word : words) argv.push_back(word.data());
    argv.push_back(nullptr);
    std::FILE *in = std::tmpfile(), *out = std::tmpfile(), *err = std::tmpfile();
    REQUIRE(in != nullptr);
    REQUIRE(out != nullptr);
    REQUIRE(err != nullptr);
    std::fwrite(input.data(), 1, input.size(), in);
    std::rewind(in);
    const pid_t child = fork();
    REQUIRE(child >= 0);
    if (child == 0) {
        if (dup2(fileno(in), 0) < 0 || dup2(fileno(out), 1) < 0 || dup2(fileno(err), 2) < 0) _exit(99);
        execv(argv[0], argv.data());
        _exit(98);
    }
    int status = 0;
    REQUIRE(waitpid(child, &status, 0) == child);
    const Ended ended{WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status), contents(out), contents(err)};
    for (std::FILE *file : {in, out, err}) std::fclose(file);
    return ended;
}

inline void expect_refused(const Ended &e, const std::string &word) {
    CAPTURE(e.err);
    CHECK(e.status == 2);
    CHECK(e.out == "");
    CHECK(e.err.find(word) != std::string::npos);
    CHECK(e.err.find('\n') + 1 == e.err.size());
}

}  // namespace planner_test

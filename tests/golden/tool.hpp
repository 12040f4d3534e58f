// SPDX-License-Identifier: Apache-2.0
// The program mdlm as a process, for the cases that run it.
#pragma once
#include <algorithm>
#include <cstdlib>
#include <doctest/doctest.h>
#include <fcntl.h>
#include <sys/wait.h>
#include <unistd.h>

#include "../../tools/npy.hpp"
#include "../../tools/text.hpp"
#include "golden_support.hpp"

namespace golden {

namespace fs = std::filesystem;

struct Ended {
    int status;  // exit status; 128 + the signal if one ended it
    std::string out, err;
};

class Tool {
public:
    Tool() {
        const char *other = std::getenv("MDLM_TOOL");  // an installed one, say
        path_ = other != nullptr ? other : MDLM_TOOL_PATH;
    }
    Ended operator()(std::vector<std::string> words, const char *out_to = nullptr) const {
        const std::string out = out_to != nullptr ? out_to : (folder_.path() / "out").string(),
                          err = (folder_.path() / "err").string();
        words.insert(words.begin(), path_);
        std::vector<char *> argv;
        for (std::string &word : words) argv.push_back(word.data());
        argv.push_back(nullptr);
        const pid_t child = fork();
        REQUIRE(child >= 0);
        if (child == 0) {
            const int to = open(out.c_str(), O_WRONLY | O_CREAT | O_TRUNC, 0600),
                      errors = open(err.c_str(), O_WRONLY | O_CREAT | O_TRUNC, 0600);
            if (to < 0 || errors < 0 || dup2(to, 1) < 0 || dup2(errors, 2) < 0) _exit(99);
            execv(path_.c_str(), argv.data());
            _exit(98);
        }
        int status = 0;
        REQUIRE(waitpid(child, &status, 0) == child);
        return {WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status),
                out_to != nullptr ? "" : read_text(out), read_text(err)};
    }

private:
    std::string path_;
    TemporaryFolder folder_;
};

inline std::ptrdiff_t lines(const std::string &text) { return std::count(text.begin(), text.end(), '\n'); }
inline bool holds(const std::string &text, const std::string &part) { return text.find(part) != std::string::npos; }

// Refused: status 2, nothing on standard output, one line on standard error that holds every part.
inline void expect_refused(const Ended &ended, const std::vector<std::string> &parts) {
    CAPTURE(ended.err);
    CHECK(ended.status == 2);
    CHECK(ended.out == "");
    CHECK(lines(ended.err) == 1);
    for (const std::string &part : parts) {
        CAPTURE(part);
        CHECK(holds(ended.err, part));
    }
}

inline void replace_line(const fs::path &config, const std::string &key, const std::string &line) {
    std::string text = read_text(config);
    const size_t begin = text.find(key + " =");
    REQUIRE(begin != std::string::npos);
    text.replace(begin, text.find('\n', begin) - begin, line);
    write_text(config, text);
}

}  // namespace golden

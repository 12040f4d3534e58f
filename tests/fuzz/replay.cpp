// SPDX-License-Identifier: Apache-2.0
// Every target over the files of its corpus, without libFuzzer. `MDLM_FUZZ_INPUT=FILE` takes one file instead.
#include <doctest/doctest.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>

#include "fuzz/target.hpp"
#include "support/repro.hpp"

#if defined(__SANITIZE_ADDRESS__)
extern "C" void __sanitizer_set_death_callback(void (*callback)(void));
#endif

namespace {

std::string running;  // how to repeat what runs now

// A sanitizer ends the process, and the runner with it.
void tell() {
    std::printf("repeat it with: %s\n", running.c_str());
    std::fflush(stdout);
}

void replay(const char *name) {
#if defined(__SANITIZE_ADDRESS__)
    __sanitizer_set_death_callback(tell);
#else
    (void)tell;
#endif
    std::vector<std::string> files;
    const char *only = std::getenv("MDLM_FUZZ_INPUT");
    if (only != nullptr) files.emplace_back(only);
    else
        for (const auto &entry : std::filesystem::directory_iterator(std::string(MDLM_FUZZ_CORPUS "/") + name))
            files.push_back(entry.path().string());
    std::sort(files.begin(), files.end());
    for (const std::string &file : files) {
        std::ifstream stream(file, std::ios::binary);
        REQUIRE_MESSAGE(stream.good(), file);
        const std::string bytes{std::istreambuf_iterator<char>(stream), {}};
        running = "MDLM_FUZZ_INPUT='" + file + "' " + MDLM_FUZZ_PROGRAM + " '--test-case=fuzz: " + name + "'";
        mdlm_test::repro("only this file: " + running);
        try {
            fuzz::target_of(name)->run(bytes);
        } catch (const std::exception &wrong) {
            FAIL_CHECK(file, ": ", wrong.what());
            if (only == nullptr) return;
        }
    }
    CHECK(files.size() >= 1);
}

}  // namespace

TEST_CASE("fuzz: config") { replay("config"); }
TEST_CASE("fuzz: flags") { replay("flags"); }
TEST_CASE("fuzz: chain") { replay("chain"); }
TEST_CASE("fuzz: plan") { replay("plan"); }
TEST_CASE("fuzz: table") { replay("table"); }
TEST_CASE("fuzz: npy") { replay("npy"); }
TEST_CASE("fuzz: golden") { replay("golden"); }
TEST_CASE("fuzz: calls") { replay("calls"); }

TEST_CASE("fuzz: every target has a corpus") {
    std::vector<std::string> folders, names;
    for (const auto &entry : std::filesystem::directory_iterator(MDLM_FUZZ_CORPUS))
        folders.push_back(entry.path().filename().string());
    for (const fuzz::Target &t : fuzz::targets) names.emplace_back(t.name);
    std::sort(folders.begin(), folders.end());
    std::sort(names.begin(), names.end());
    CHECK(folders == names);
}

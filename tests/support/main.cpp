// SPDX-License-Identifier: Apache-2.0
// The main program of every doctest suite. Beside doctest's own report: a command that repeats each failed case, an
// honest count of skipped ones, and one line "mdlm-test: P passed, F failed, S skipped" that tests/run_suites.py adds
// up.
#define DOCTEST_CONFIG_IMPLEMENT
#include <doctest/doctest.h>

#include <cstdio>
#include <cstdlib>
#include <string>

#include "support/repro.hpp"

namespace {

std::string program;
int passed = 0, failed = 0, skipped = 0;

// Commas separate filters and backslashes escape, for doctest; single quotes are the shell's.
std::string quoted(const char *name) {
    std::string text = "'--test-case=";
    for (const char *c = name; *c != 0; ++c) {
        if (*c == ',' || *c == '\\') text += '\\';
        text += *c == '\'' ? std::string("'\\''") : std::string(1, *c);
    }
    return text + "'";
}

struct Listener : doctest::IReporter {
    const doctest::TestCaseData *current = nullptr;

    explicit Listener(const doctest::ContextOptions &) {}
    void report_query(const doctest::QueryData &) override {}
    void test_run_start() override {}
    void test_case_start(const doctest::TestCaseData &data) override {
        current = &data;
        mdlm_test::repro_text.clear();
        mdlm_test::skip_reason.clear();
    }
    void test_case_reenter(const doctest::TestCaseData &) override {}
    void test_case_end(const doctest::CurrentTestCaseStats &stats) override {
        if (stats.failure_flags != 0) {
            ++failed;
            std::printf("repeat it with: %s %s\n", program.c_str(), quoted(current->m_name).c_str());
            if (!mdlm_test::repro_text.empty()) std::printf("  %s\n", mdlm_test::repro_text.c_str());
        } else if (!mdlm_test::skip_reason.empty()) {
            ++skipped;
            std::printf("skipped, %s: %s\n", mdlm_test::skip_reason.c_str(), current->m_name);
        } else {
            ++passed;
        }
    }
    void test_case_exception(const doctest::TestCaseException &) override {}
    void subcase_start(const doctest::SubcaseSignature &) override {}
    void subcase_end() override {}
    void log_assert(const doctest::AssertData &) override {}
    void log_message(const doctest::MessageData &) override {}
    void test_case_skipped(const doctest::TestCaseData &) override {}
    // Also reached when a case dies of a signal, which doctest counts as its failure.
    void test_run_end(const doctest::TestRunStats &) override {
        std::printf("mdlm-test: %d passed, %d failed, %d skipped\n", passed, failed, skipped);
        std::fflush(stdout);
    }
};

REGISTER_LISTENER("mdlm", 1, Listener);

}  // namespace

// For sanitizer builds: leaks count, and an allocation that cannot be had is NULL or bad_alloc as without the
// sanitizer, not an abort.
extern "C" const char *__asan_default_options() {
    return "detect_leaks=1:allocator_may_return_null=1:detect_stack_use_after_return=1:max_allocation_size_mb=65536";
}
extern "C" const char *__ubsan_default_options() { return "print_stacktrace=1"; }

int main(int argc, char **argv) {
    program = argc > 0 ? argv[0] : "test";
    if (const char *set = std::getenv("MDLM_TEST_INSTRUCTION_SET"))
        program = "MDLM_TEST_INSTRUCTION_SET=" + std::string(set) + " " + program;
    doctest::Context context(argc, argv);
    return context.run();
}

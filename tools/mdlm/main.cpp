// SPDX-License-Identifier: Apache-2.0
// mdlm: says what the library and its device are, checks it against golden cases, and times it. Uses the public C ABI
// only.
#include <algorithm>
#include <cstdio>
#include <exception>

#include "../text.hpp"
#include "command.hpp"
#include "mdlm/mdlm.h"
#include "mpi.hpp"
#include "ranks.hpp"

namespace mdlm::tools {
namespace {

constexpr char help[] = R"(NAME
    mdlm - look at libmdlm, check it and time it

SYNOPSIS
    mdlm info  [--device cpu|reference] [--threads N] [--json]
    mdlm check [OPTION...] [CONFIG FLAG...] DIR...
    mdlm bench [OPTION...] CONFIG FLAG...
    mdlm plan  [OPTION...]
    mpirun -n T mdlm check|bench ...
    mdlm --help | --version
    mdlm COMMAND --help

COMMANDS
    info     version of the library, and what its device computes with
    check    runs golden cases and says how far the results are from theirs
    bench    times forward and backward, and says what replay costs and where the time goes
    plan     the plan with the least extra time that fits a budget of bytes, or all of them

    check and bench run the block on several ranks with --tensor-model-parallel-size, as threads, or as the
    processes that mpirun starts.

EXIT STATUS
    0  fine
    1  check: a result is past the tolerance
    2  an option, a folder or a file is not what it should be, or a call failed; one line on standard error says which
)";

struct Command {
    const char *name;
    int (*run)(const std::vector<std::string> &words);
    const char *help;
};
const Command commands[] = {{"info", info_command, info_help},
                            {"check", check_command, check_help},
                            {"bench", bench_command, bench_help},
                            {"plan", plan_command, plan_help}};

int run(const std::vector<std::string> &words) {
    if (words.empty()) bad("mdlm: expected a command (info, check, bench, plan) or --help, seen nothing");
    if (words[0] == "--help" || words[0] == "-h" || words[0] == "help") {
        std::fputs(help, stdout);
        return exit_fine;
    }
    if (words[0] == "--version") {
        std::printf("mdlm %s\n", mdlm_version());
        return exit_fine;
    }
    const std::vector<std::string> rest(words.begin() + 1, words.end());
    const bool wants_help =
        std::any_of(rest.begin(), rest.end(), [](const auto &word) { return word == "--help" || word == "-h"; });
    const auto *const command =
        std::find_if(std::begin(commands), std::end(commands), [&](const Command &c) { return words[0] == c.name; });
    if (command == std::end(commands))
        bad("mdlm: expected a command (info, check, bench, plan) or --help, seen '%s'", words[0].c_str());
    if (!wants_help) return command->run(rest);
    std::fputs(command->help, stdout);
    return exit_fine;
}

}  // namespace
}  // namespace mdlm::tools

int main(int argc, char **argv) {
    using namespace mdlm::tools;
    int status = exit_bad;
    std::string line;
    try {
        status = run({argv + std::min(argc, 1), argv + argc});
    } catch (const Bad &error) {
        line = error.what();
    } catch (const std::exception &error) {
        line = "mdlm: " + one_line(error.what());
    }
    // Of processes that run together, all fail and one says why; it has done so before any of them passes the end of
    // MPI and exits.
    if (!line.empty() && launched().rank == 0) std::fprintf(stderr, "%s\n", line.c_str());
    mpi::end();
    if (std::fflush(stdout) != 0 || std::ferror(stdout) != 0) {
        std::fputs("mdlm: standard output could not be written\n", stderr);
        return exit_bad;
    }
    return status;
}

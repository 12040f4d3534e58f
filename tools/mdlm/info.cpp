// SPDX-License-Identifier: Apache-2.0
#include <cstdio>

#include "../text.hpp"
#include "command.hpp"
#include "mpi.hpp"
#include "run.hpp"

namespace mdlm::tools {

const char info_help[] = R"(NAME
    mdlm info - version of the library, and what its device computes with

SYNOPSIS
    mdlm info [--device cpu|reference] [--threads N] [--json]

OPTIONS
    --device D     cpu (default) or reference: plain loops with double accumulation, the measure of the others
    --threads N    threads of the library's pool (default 0: all cores that this process may use)
    --json         one JSON object instead of lines

OUTPUT
    version   of the library that is loaded
    api       its API version, and that of the header this program was compiled with
    device    one line: kind, threads, instruction set, matmul library, what each dtype runs on
    threads   of the pool
    mpi       the MPI library that bench and check run processes with under its mpirun; "no" in a build without
)";

int info_command(const std::vector<std::string> &list) {
    mdlm_device_kind device = MDLM_DEVICE_CPU;
    int32_t threads = 0;
    bool json = false;
    std::string value;
    for (Words words(list); !words.done();) {
        if (words.option("--device", &value)) device = device_of(value);
        else if (words.option("--threads", &value)) threads = threads_of(value);
        else if (words.flag("--json")) json = true;
        else bad("mdlm info: expected --device, --threads, --json or --help, seen '%s'", words.peek().c_str());
    }
    const Context context = open_context(device, threads);
    size_t length = 0;
    if (mdlm_context_info(context.get(), nullptr, 0, &length) != MDLM_OK) bad("mdlm info: %s", mdlm_last_error());
    std::string line(length + 1, '\0');
    if (mdlm_context_info(context.get(), line.data(), line.size(), &length) != MDLM_OK)
        bad("mdlm info: %s", mdlm_last_error());
    line.resize(length);
    // The reference device runs on the thread that calls it.
    if (device == MDLM_DEVICE_REFERENCE) threads = 1;
    else if (threads == 0) threads = cores();
    const std::string mpi = mpi::about();

    if (json)
        std::printf("{\"version\": %s, \"api_version\": %d, \"header_api_version\": %d, \"device\": %s, \"threads\": "
                    "%d, \"mpi\": %s}\n",
                    json_string(mdlm_version()).c_str(), mdlm_api_version(), MDLM_API_VERSION,
                    json_string(line).c_str(), threads, mpi.empty() ? "null" : json_string(mpi).c_str());
    else
        std::printf("version  %s\napi      %d (header %d)\ndevice   %s\nthreads  %d\nmpi      %s\n", mdlm_version(),
                    mdlm_api_version(), MDLM_API_VERSION, line.c_str(), threads, mpi.empty() ? "no" : mpi.c_str());
    return exit_fine;
}

}  // namespace mdlm::tools

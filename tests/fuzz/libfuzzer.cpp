// SPDX-License-Identifier: Apache-2.0
// One target under libFuzzer: mdlm-fuzz TARGET [option...] [corpus...]
#include <cstdio>
#include <cstdlib>

#include "fuzz/target.hpp"

namespace {
const fuzz::Target *target = nullptr;
}

extern "C" const char *__asan_default_options() {
    return "detect_leaks=1:allocator_may_return_null=1:max_allocation_size_mb=4096";
}
extern "C" const char *__ubsan_default_options() { return "print_stacktrace=1"; }

extern "C" int LLVMFuzzerInitialize(int *argc, char ***argv) {
    if (*argc > 1) target = fuzz::target_of((*argv)[1]);
    if (target == nullptr) {
        std::fprintf(stderr, "usage: %s TARGET [option of libFuzzer...] [file or folder...]\n", (*argv)[0]);
        for (const fuzz::Target &t : fuzz::targets) std::fprintf(stderr, "  %-8s %s\n", t.name, t.what);
        std::exit(2);
    }
    for (int i = 1; i + 1 < *argc; ++i) (*argv)[i] = (*argv)[i + 1];
    --*argc;
    return 0;
}

extern "C" int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    try {
        target->run({reinterpret_cast<const char *>(data), size});
    } catch (const std::exception &wrong) {
        std::fprintf(stderr, "FOUND by %s: %s\n", target->name, wrong.what());
        std::abort();  // libFuzzer keeps the input
    }
    return 0;
}

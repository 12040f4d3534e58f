// SPDX-License-Identifier: Apache-2.0
// With MDLM_TEST_INSTRUCTION_SET=SSE4 in the environment (a name of Highway's), the CPU device has the kernels that it
// has on a machine with nothing better. So what other machines run is tested on this one.
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>

#include "device/cpu/product.hpp"
#include "device/cpu/targets.hpp"  // which sets the kernels were compiled for
#include "doctest/doctest.h"
#include "hwy/targets.h"

namespace {

const char *wanted() { return std::getenv("MDLM_TEST_INSTRUCTION_SET"); }

// Before any kernel is picked. Highway numbers better sets lower.
[[maybe_unused]] const bool chosen = [] {
    if (wanted() == nullptr) return false;
    for (int bit = 0; bit < 63; ++bit) {
        const int64_t target = int64_t{1} << bit;
        if (std::strcmp(hwy::TargetName(target), wanted()) != 0) continue;
        if ((hwy::SupportedTargets() & target) == 0) break;
        hwy::DisableTargets(target - 1);
        return true;
    }
    std::printf("skipped, this machine has no %s: all\nmdlm-test: 0 passed, 0 failed, 1 skipped\n", wanted());
    std::exit(0);
}();

}  // namespace

TEST_CASE("cpu: the kernels are those for the instruction set that was asked for") {
    std::string set = wanted() != nullptr ? wanted() : "";
    if (set.empty()) {  // only then: asking what is supported forgets what was disabled
        const int64_t usable = hwy::SupportedTargets() & HWY_TARGETS;
        set = hwy::TargetName(usable & -usable);
    }
    CHECK(std::string(mdlm::cpu::kernel_target()) == set);
}

// SPDX-License-Identifier: Apache-2.0
// How long the planner takes, and how much memory: chains of 128 layers at budgets over the whole range. Prints the
// median and the longest solve of each kind, and the most memory that was allocated during any one. No test: run it by
// hand, or by `meson test --benchmark`.
#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <ctime>
#include <malloc.h>
#include <new>
#include <unistd.h>
#include <vector>

#include "planner/chain.hpp"
#include "support/split_mix.hpp"

namespace {

size_t in_use = 0, most_in_use = 0;

}  // namespace

// Not inlined: gcc would take a malloc and an operator delete for a mismatch.
__attribute__((noinline)) void *operator new(size_t bytes) {
    void *p = std::malloc(bytes);
    if (p == nullptr) throw std::bad_alloc();
    in_use += malloc_usable_size(p);
    most_in_use = std::max(most_in_use, in_use);
    return p;
}
__attribute__((noinline)) void operator delete(void *p) noexcept {
    if (p != nullptr) in_use -= malloc_usable_size(p);
    std::free(p);
}
void operator delete(void *p, size_t) noexcept { operator delete(p); }

namespace {

using namespace mdlm::planner;

using mdlm_test::Random;

constexpr int64_t mebibyte = 1 << 20;

// A layer as large ones are: its tensors are kept or computed again, one after the other in order of what keeping them
// saves a byte, and sometimes not in that order. Bytes are multiples of 256.
LayerType draw_layer(Random &random, int64_t policies) {
    LayerType l;
    const int64_t x = random.in(48, 80) * mebibyte;
    l.boundary_bytes = x, l.forward_ns = random.in(6, 10) * 1000000, l.unsaved_forward_bytes = 6 * x;
    int64_t saved = x, extra = l.forward_ns * 8 / 10;
    const int64_t all = 17 * x;
    for (int64_t i = 0; i < policies; ++i) {
        PolicyCost p;
        p.saved_bytes = saved / 256 * 256, p.extra_ns = extra;
        p.forward_bytes = p.saved_bytes + random.in(2, 6) * x,
        p.backward_bytes = std::max(p.saved_bytes, all * 3 / 4) + random.in(2, 8) * x;
        p.rebuild_ns = i == 0 ? 0 : (l.forward_ns - extra) * 9 / 10;
        l.policies.push_back(p);
        saved += (all - saved) / (policies - i) * random.in(20, 180) / 100;
        // The first bytes kept save several times what the last ones do.
        extra -= i + 2 >= policies ? extra : std::min(extra, extra / (policies - 1 - i) * random.in(60, 300) / 100);
    }
    l.unit_inputs.push_back({"keep", x, 0, true});
    return l;
}

enum class Mix { alike, two_kinds, all_different };

Chain draw_chain(uint64_t seed, int64_t policies, int64_t unit_layers, Mix mix, int64_t tapes) {
    Random random(seed);
    Chain c;
    c.in_flight = tapes, c.loss_bytes = 300 * mebibyte;
    c.max_unit_depth = unit_layers > 1, c.max_unit_layers = unit_layers;
    const int32_t types = mix == Mix::alike ? 1 : mix == Mix::two_kinds ? 2 : 128;
    for (int32_t t = 0; t < types; ++t) c.types.push_back(draw_layer(random, policies));
    for (int32_t i = 0; i < 128; ++i) c.layers.push_back(mix == Mix::two_kinds ? i % 4 == 3 : i % types);
    c.input_bytes = c.types[0].boundary_bytes;
    return c;
}

// Of this thread: what else runs on the machine does not count.
double cpu_ms() {
    timespec now{};
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
    return static_cast<double>(now.tv_sec) * 1e3 + static_cast<double>(now.tv_nsec) * 1e-6;
}

void measure(const char *what, int64_t policies, int64_t unit_layers, Mix mix, int64_t tapes, int chains) {
    std::vector<double> ms;
    size_t memory = 0;
    int solves = 0, optimal = 0;
    for (int n = 0; n < chains; ++n) {
        const Chain c = draw_chain(static_cast<uint64_t>(n + 1), policies, unit_layers, mix, tapes);
        const int64_t least = solve(c, 0).minimum_budget_bytes, most = solve(c, INT64_MAX).peak_bytes;
        for (int64_t percent : {0, 2, 5, 10, 25, 50, 75, 90, 95}) {
            const int64_t budget = least + (most - least) / 100 * percent;
            if (isatty(STDERR_FILENO))
                std::fprintf(stderr, "\r%s: chain %d of %d, %lld %%   ", what, n + 1, chains,
                             static_cast<long long>(percent));
            most_in_use = in_use;
            const size_t before = in_use;
            const double began = cpu_ms();
            const Result r = solve(c, budget);
            ms.push_back(cpu_ms() - began);
            memory = std::max(memory, most_in_use - before);
            ++solves, optimal += r.optimal;
            if (std::getenv("MDLM_BENCH_VERBOSE") != nullptr)
                std::printf("%s %d %3lld%%: %.2f ms, %.1f MiB, %lld ns, gap %lld\n", what, n,
                            static_cast<long long>(percent), ms.back(),
                            static_cast<double>(most_in_use - before) / mebibyte, static_cast<long long>(r.extra_ns),
                            static_cast<long long>(r.gap_ns));
        }
    }
    std::sort(ms.begin(), ms.end());
    if (isatty(STDERR_FILENO)) std::fprintf(stderr, "\r%60s\r", "");
    std::printf("%-58s median %8.2f ms   longest %8.2f ms   memory %6.1f MiB   optimal %d of %d\n", what,
                ms[ms.size() / 2], ms.back(), static_cast<double>(memory) / mebibyte, optimal, solves);
    std::fflush(stdout);
}

}  // namespace

int main(int argc, char **argv) {
    const int chains = argc > 1 ? std::max(std::atoi(argv[1]), 1) : 5;
    std::printf("128 layers; time of one core\n");
    measure("alike, 12 policies, units to 8", 12, 8, Mix::alike, 1, chains);
    measure("two kinds, 12 policies, units to 8", 12, 8, Mix::two_kinds, 1, chains);
    measure("all different, 12 policies, units to 8", 12, 8, Mix::all_different, 1, chains);
    measure("alike, 64 policies, no units", 64, 0, Mix::alike, 1, chains);
    measure("two kinds, 64 policies, no units", 64, 0, Mix::two_kinds, 1, chains);
    measure("all different, 64 policies, no units", 64, 0, Mix::all_different, 1, chains);
    measure("alike, 12 policies, units to 8, 3 tapes", 12, 8, Mix::alike, 3, chains);
    measure("all different, 12 policies, no units, 3 tapes", 12, 0, Mix::all_different, 3, chains);
}

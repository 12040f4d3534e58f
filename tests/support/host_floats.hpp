// SPDX-License-Identifier: Apache-2.0
// Floating-point environments that a host may be in, set and read by other means than the library's: <cfenv>, and for
// what C has no word for the registers.
#pragma once
#include <cfenv>
#include <cstdint>

namespace mdlm_test {

struct HostFloats {
    int rounding = FE_TONEAREST;
    bool flush = false;  // denormals count as 0, in results and operands

    static HostFloats now() { return {std::fegetround(), flushes()}; }
    void set() const {
        std::fesetround(rounding);
#if defined(__x86_64__)
        uint32_t csr = __builtin_ia32_stmxcsr();
        csr = flush ? csr | 0x8040u : csr & ~0x8040u;
        __builtin_ia32_ldmxcsr(csr);
#elif defined(__aarch64__)
        uint64_t fpcr = 0;
        asm volatile("mrs %0, fpcr" : "=r"(fpcr));
        fpcr = flush ? fpcr | 1u << 24 : fpcr & ~(uint64_t{1} << 24);
        asm volatile("msr fpcr, %0" : : "r"(fpcr));
#endif
    }
    bool operator==(const HostFloats &) const = default;

    static bool flushes() {
        volatile float least = 1e-38f;
        volatile float part = least / 256.0f;  // denormal
        return part == 0.0f;
    }
};

// Leaves the thread as it was.
class HostFloatsScope {
public:
    explicit HostFloatsScope(const HostFloats &floats) {
        std::fegetenv(&before_);
        floats.set();
    }
    ~HostFloatsScope() { std::fesetenv(&before_); }
    HostFloatsScope(const HostFloatsScope &) = delete;

private:
    std::fenv_t before_;
};

}  // namespace mdlm_test

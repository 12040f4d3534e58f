// SPDX-License-Identifier: Apache-2.0
// The floating-point environment: rounding, what becomes of denormals, which exceptions trap, and the flags of those
// that occurred. The same bits on every thread need the same environment there, and a caller may have any (a host that
// is linked with -ffast-math flushes denormals).
//
// The compiler knows nothing of the environment, but what is computed lies in memory, and no access to it moves over
// install().
#pragma once
#include <cstdint>

#if !defined(__x86_64__) && !defined(__aarch64__)
#include <cfenv>
#endif

namespace mdlm {

#if defined(__x86_64__)

// A default one is the library's: rounding to nearest, denormals kept, no exception traps, no flags.
struct FloatEnvironment {
    uint32_t mxcsr = 0x1f80;
    uint16_t x87 = 0x037f;  // control word; its flags stay the thread's, since nothing here computes with x87

    static FloatEnvironment current() noexcept {
        FloatEnvironment e;
        asm volatile("stmxcsr %0\n\tfnstcw %1" : "=m"(e.mxcsr), "=m"(e.x87) : : "memory");
        return e;
    }
    // Makes it the calling thread's, which is what now is.
    void install(const FloatEnvironment &now) const noexcept {
        if (mxcsr != now.mxcsr) asm volatile("ldmxcsr %0" : : "m"(mxcsr) : "memory");
        if (x87 == now.x87) return;
        // A flag that is set would trap at once where its exception is unmasked by fldcw alone.
        struct {
            uint32_t control, rest[6];
        } all;
        asm volatile("fnstenv %0" : "=m"(all) : : "memory");
        all.control = (all.control & 0xffff0000u) | x87;
        asm volatile("fldenv %0" : : "m"(all) : "memory");
    }
};

#elif defined(__aarch64__)

struct FloatEnvironment {
    uint64_t control = 0, flags = 0;  // FPCR, FPSR

    static FloatEnvironment current() noexcept {
        FloatEnvironment e;
        asm volatile("mrs %0, fpcr\n\tmrs %1, fpsr" : "=r"(e.control), "=r"(e.flags) : : "memory");
        return e;
    }
    void install(const FloatEnvironment &now) const noexcept {
        if (control != now.control) asm volatile("msr fpcr, %0" : : "r"(control) : "memory");
        if (flags != now.flags) asm volatile("msr fpsr, %0" : : "r"(flags) : "memory");
    }
};

#else

struct FloatEnvironment {
    std::fenv_t callers;
    bool standard = true;

    static FloatEnvironment current() noexcept {
        FloatEnvironment e;
        e.standard = std::fegetenv(&e.callers) != 0;
        return e;
    }
    void install(const FloatEnvironment &) const noexcept { std::fesetenv(standard ? FE_DFL_ENV : &callers); }
};

#endif

// In its scope the library's environment; afterwards what was there, flags too. Around whatever computes on a thread
// that is not the library's.
class LibraryFloats {
public:
    LibraryFloats() noexcept : callers_(FloatEnvironment::current()) { FloatEnvironment().install(callers_); }
    ~LibraryFloats() { callers_.install(FloatEnvironment::current()); }
    LibraryFloats(const LibraryFloats &) = delete;

private:
    FloatEnvironment callers_;
};

// The same for a call of the C ABI, whose thread may call functions of the caller's.
class CallFloats {
public:
    CallFloats() noexcept;
    ~CallFloats();
    CallFloats(const CallFloats &) = delete;

private:
    friend class CallersFloats;
    FloatEnvironment callers_;
    CallFloats *outer_;
};

// Around a function of the caller's during a call: its scope has the caller's environment, and what is changed there
// stays the caller's.
class CallersFloats {
public:
    CallersFloats() noexcept;
    ~CallersFloats();
    CallersFloats(const CallersFloats &) = delete;

private:
    CallFloats *call_;
};

}  // namespace mdlm

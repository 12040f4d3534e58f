// Which instruction sets the kernels of this folder are compiled for: Google Highway compiles a file once for each and picks at run time
// by the CPU. Chosen over std::experimental::simd, which takes the instruction set from the compiler's flags: there, whatever inline
// function of the standard library two files share may be linked in the version for the newer CPU, and crash on the older one.
// Included first in such a file.
#pragma once

// Under sanitizers, where compiling takes long, only what most machines run and the loops for all others.
#if defined(__SANITIZE_ADDRESS__)
#define HWY_DISABLED_TARGETS (HWY_SSSE3 | HWY_SSE4 | HWY_AVX3 | HWY_AVX3_DL | HWY_SVE | HWY_SVE2)
#else
#define HWY_DISABLED_TARGETS (HWY_SSSE3 | HWY_AVX3_DL | HWY_SVE | HWY_SVE2)
#endif

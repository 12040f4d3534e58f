// SPDX-License-Identifier: Apache-2.0
// Which instruction sets the kernels of this folder are compiled for: Google Highway compiles a file once for each and
// picks at run time by the CPU. Chosen over std::experimental::simd, which takes the instruction set from the
// compiler's flags: there, whatever inline function of the standard library two files share may be linked in the
// version for the newer CPU, and crash on the older one. Included first in such a file.
#pragma once

// Vectors of a length that is known only at run time cannot be members of a struct, and compilers treat SVE's like that
// also where Highway fixes the length. Processors with SVE run the kernels for NEON.
#define MDLM_SIZELESS_TARGETS (HWY_SVE | HWY_SVE2 | HWY_SVE_256 | HWY_SVE2_128)

// Under sanitizers, where compiling takes long, only what most machines run and the loops for all others.
#if defined(__SANITIZE_ADDRESS__)
#define HWY_DISABLED_TARGETS (HWY_SSSE3 | HWY_SSE4 | HWY_AVX3 | HWY_AVX3_DL | MDLM_SIZELESS_TARGETS)
#else
#define HWY_DISABLED_TARGETS (HWY_SSSE3 | HWY_AVX3_DL | MDLM_SIZELESS_TARGETS)
#endif

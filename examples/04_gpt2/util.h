/* SPDX-License-Identifier: Apache-2.0 */
/* What every file here needs: failing, memory, random numbers, time. */
#ifndef UTIL_H
#define UTIL_H

#include <mdlm/mdlm.h>
#include <stddef.h>
#include <stdint.h>

enum { EXIT_FAILED = 1, EXIT_USAGE = 2 };

/* One line on stderr, then exit. A program may do that; libmdlm never does. */
#if defined(__GNUC__)
__attribute__((format(printf, 2, 3)))
#endif
_Noreturn void
die(int code, const char *format, ...);

/* Every call of the library goes through this. */
#define CHECK(call) check_status((call), #call)
void check_status(mdlm_status status, const char *call);

/* count * size zeroed bytes, aligned to 64; never NULL. */
void *allocate(size_t count, size_t size);

/* splitmix64: one 64-bit word of state, which a checkpoint can hold. */
typedef struct rng {
    uint64_t state;
} rng;
uint64_t rng_next(rng *generator);
size_t rng_below(rng *generator, size_t limit);
double rng_uniform(rng *generator); /* [0, 1) */
float rng_normal(rng *generator);   /* mean 0, deviation 1 */

double seconds(void);

#endif

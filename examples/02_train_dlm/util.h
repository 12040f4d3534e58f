/* SPDX-License-Identifier: Apache-2.0 */
/* What every file here needs: failing, memory, random numbers, time. */
#ifndef UTIL_H
#define UTIL_H

#include <mdlm/mdlm.h>
#include <stddef.h>
#include <stdint.h>

enum { EXIT_FAILED = 1, EXIT_USAGE = 2 };

/* One line on stderr, then exit; of several ranks in one process the first that comes here. A program may do that;
 * libmdlm never does. */
#if defined(__GNUC__)
__attribute__((format(printf, 2, 3)))
#endif
_Noreturn void
die(int code, const char *format, ...);

/* This process is not the first of several: it leaves what is wrong for all of them, EXIT_USAGE, for the first to say.
 */
void die_quietly(void);

/* Every call of the library goes through this. */
#define CHECK(call) check_status((call), #call)
void check_status(mdlm_status status, const char *call);

/* count * size zeroed bytes, aligned to 64, a line of the cache (the library asks for the size of an element); never
 * NULL. */
void *allocate(size_t count, size_t size);

/* splitmix64: one 64-bit word of state, the same numbers on every machine. */
typedef struct rng {
    uint64_t state;
} rng;
/* A stream of its own for every purpose, so that drawing more for one changes nothing for another. */
rng rng_stream(uint64_t seed, uint64_t purpose);
uint64_t rng_next(rng *generator);
size_t rng_below(rng *generator, size_t limit);
double rng_uniform(rng *generator); /* [0, 1) */
float rng_normal(rng *generator);   /* mean 0, deviation 1 */

double seconds(void);
uint64_t fnv1a(uint64_t hash, const void *data, size_t bytes);
#define FNV1A_START 0xcbf29ce484222325u

float bf16_to_float(uint16_t bits);
uint16_t float_to_bf16(float value);

#endif

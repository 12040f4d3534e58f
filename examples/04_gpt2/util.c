/* SPDX-License-Identifier: Apache-2.0 */
#define _POSIX_C_SOURCE 200809L
#include "util.h"

#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

void die(int code, const char *format, ...) {
    va_list arguments;
    va_start(arguments, format);
    fputs("gpt2: ", stderr);
    vfprintf(stderr, format, arguments);
    fputc('\n', stderr);
    va_end(arguments);
    exit(code);
}

void check_status(mdlm_status status, const char *call) {
    if (status != MDLM_OK)
        die(EXIT_FAILED, "%.*s: %s: %s", (int)strcspn(call, "("), call, mdlm_status_name(status), mdlm_last_error());
}

void *allocate(size_t count, size_t size) {
    if (size != 0 && count > (SIZE_MAX - 63) / size)
        die(EXIT_FAILED, "%zu x %zu bytes do not fit into memory", count, size);
    size_t bytes = (count * size + 63) / 64 * 64;
    if (bytes == 0) bytes = 64;
    void *memory = aligned_alloc(64, bytes);
    if (memory == NULL) die(EXIT_FAILED, "out of memory: %zu bytes", bytes);
    return memset(memory, 0, bytes);
}

uint64_t rng_next(rng *generator) {
    uint64_t z = (generator->state += 0x9e3779b97f4a7c15u);
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
    return z ^ (z >> 31);
}

double rng_uniform(rng *generator) { return (double)(rng_next(generator) >> 11) * 0x1p-53; }

size_t rng_below(rng *generator, size_t limit) { return (size_t)(rng_uniform(generator) * (double)limit); }

float rng_normal(rng *generator) {
    double radius = sqrt(-2.0 * log(1.0 - rng_uniform(generator)));
    return (float)(radius * cos(6.283185307179586 * rng_uniform(generator)));
}

double seconds(void) {
    struct timespec now;
    if (clock_gettime(CLOCK_MONOTONIC, &now) != 0) die(EXIT_FAILED, "the clock cannot be read");
    return (double)now.tv_sec + 1e-9 * (double)now.tv_nsec;
}

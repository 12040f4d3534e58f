/* SPDX-License-Identifier: Apache-2.0 */
#define _POSIX_C_SOURCE 200809L
#include "util.h"

#include <math.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

static atomic_flag dying = ATOMIC_FLAG_INIT;
static int quiet = 0;

void die_quietly(void) { quiet = 1; }

void die(int code, const char *format, ...) {
    while (atomic_flag_test_and_set(&dying)) pause(); /* the process ends under us */
    if (quiet && code == EXIT_USAGE) {
        sleep(1); /* the launcher ends all when one fails, and the first has something to say */
        exit(code);
    }
    va_list arguments;
    va_start(arguments, format);
    fputs("train_dlm: ", stderr);
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

rng rng_stream(uint64_t seed, uint64_t purpose) {
    rng generator = {seed};
    generator.state = rng_next(&generator) ^ (purpose * 0xd1342543de82ef95u);
    return generator;
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

uint64_t fnv1a(uint64_t hash, const void *data, size_t bytes) {
    const unsigned char *byte = data;
    for (size_t i = 0; i < bytes; i++) hash = (hash ^ byte[i]) * 0x100000001b3u;
    return hash;
}

float bf16_to_float(uint16_t bits) {
    uint32_t wide = (uint32_t)bits << 16;
    float value;
    memcpy(&value, &wide, sizeof value);
    return value;
}

uint16_t float_to_bf16(float value) {
    uint32_t bits;
    memcpy(&bits, &value, sizeof bits);
    if (value != value) return (uint16_t)(bits >> 16 | 0x40); /* rounding must not turn a NaN into an infinity */
    return (uint16_t)((bits + 0x7fff + (bits >> 16 & 1)) >> 16);
}

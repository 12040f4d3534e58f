/* SPDX-License-Identifier: Apache-2.0 */
#define _POSIX_C_SOURCE 200809L
#include "options.h"

#include "group.h"
#include "util.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

static const char usage[] =
    "usage: train_dlm [--text FILE] [--steps N] [--compare-steps N] [--threads N] [--dtype f32|bf16] [--out DIR] "
    "[--seed N]\n"
    "                 [--tensor-model-parallel-size T] [--sequence-parallel]\n"
    "Trains a small diffusion language model on bytes: briefly under five recompute settings, which must end in the "
    "same\n"
    "parameters to the bit, then for --steps steps, which must end below what counting can do. 0 steps skip a part.\n"
    "The block runs on T ranks (1, 2 or 4): threads, or the processes that mpirun has started.\n";

static uint64_t number(const char *name, const char *text, uint64_t largest) {
    char *end = NULL;
    errno = 0;
    unsigned long long value = strtoull(text, &end, 10);
    if (text[0] < '0' || text[0] > '9' || *end != '\0' || errno != 0 || value > largest)
        die(EXIT_USAGE, "%s: expected a whole number from 0 to %llu, got \"%s\"", name, (unsigned long long)largest,
            text);
    return value;
}

options options_read(int argc, char **argv) {
    options o = {NULL, "f32", ".", 1200, 30, 0, 0, 0, 1};
    for (int i = 1; i < argc; i += 2) {
        const char *name = argv[i], *value = i + 1 < argc ? argv[i + 1] : NULL;
        if (strcmp(name, "--help") == 0) {
            fputs(usage, stdout);
            exit(EXIT_SUCCESS);
        }
        if (strcmp(name, "--sequence-parallel") == 0) {
            o.sequence_parallel = 1;
            i--; /* it has no value */
            continue;
        }
        static const char *const names[] = {
            "--text", "--steps", "--compare-steps", "--threads", "--dtype", "--out", "--tensor-model-parallel-size",
            "--seed"};
        enum { NAMES = sizeof names / sizeof *names };
        size_t which = 0;
        while (which < NAMES && strcmp(name, names[which]) != 0) which++;
        if (which == NAMES) die(EXIT_USAGE, "unknown argument \"%s\"; --help lists them", name);
        if (value == NULL) die(EXIT_USAGE, "%s: a value is missing", name);
        switch (which) {
        case 0: o.text = value; break;
        case 1: o.steps = (int)number(name, value, 1000000); break;
        case 2: o.compare_steps = (int)number(name, value, 1000000); break;
        case 3: o.threads = (int)number(name, value, 1024); break;
        case 4: o.dtype = value; break;
        case 5: o.out = value; break;
        case 6: o.ranks = (int)number(name, value, 1024); break;
        default: o.seed = number(name, value, UINT64_MAX); break;
        }
    }
    if (strcmp(o.dtype, "f32") != 0 && strcmp(o.dtype, "bf16") != 0)
        die(EXIT_USAGE, "--dtype: expected f32 or bf16, got \"%s\"", o.dtype);
    int number_of_process = 0, processes = group_processes(&number_of_process);
    if (processes > 1 && o.ranks != 0 && o.ranks != processes)
        die(EXIT_USAGE,
            "--tensor-model-parallel-size: expected %d, the number of processes that were started, or none, got %d",
            processes, o.ranks);
    if (o.ranks == 0) o.ranks = processes;
    if (o.ranks != 1 && o.ranks != 2 && o.ranks != 4)
        die(EXIT_USAGE, "--tensor-model-parallel-size: expected 1, 2 or 4, got %d", o.ranks);
    if (o.ranks == 1) o.sequence_parallel = 0; /* one rank has the whole sequence */
    struct stat info;
    if (stat(o.out, &info) != 0 || !S_ISDIR(info.st_mode)) die(EXIT_USAGE, "--out: \"%s\" is not a folder", o.out);
    return o;
}

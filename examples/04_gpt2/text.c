/* SPDX-License-Identifier: Apache-2.0 */
#define _POSIX_C_SOURCE 200809L
#include "text.h"

#include <dirent.h>
#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#define LICENSES "/usr/share/common-licenses"

static void append_file(corpus *text, const char *path) {
    FILE *file = fopen(path, "rb");
    if (file == NULL) die(EXIT_USAGE, "--text: %s: %s", path, strerror(errno));
    unsigned char buffer[65536];
    size_t got;
    while ((got = fread(buffer, 1, sizeof buffer, file)) > 0) {
        unsigned char *larger = realloc(text->bytes, text->size + got);
        if (larger == NULL) die(EXIT_FAILED, "out of memory: %zu bytes of text", text->size + got);
        memcpy(larger + text->size, buffer, got);
        text->bytes = larger;
        text->size += got;
    }
    if (ferror(file)) die(EXIT_USAGE, "--text: %s: %s", path, strerror(errno));
    fclose(file);
}

static int compare_names(const void *a, const void *b) { return strcmp(*(char *const *)a, *(char *const *)b); }

/* Links are skipped: they lead to texts that are there under another name. */
static void append_licenses(corpus *text) {
    DIR *folder = opendir(LICENSES);
    if (folder == NULL) die(EXIT_USAGE, "no licence texts in " LICENSES ": say --text FILE");
    char **paths = NULL;
    size_t count = 0;
    for (struct dirent *entry; (entry = readdir(folder)) != NULL;) {
        size_t room = sizeof LICENSES + 1 + strlen(entry->d_name);
        char *path = allocate(room, 1);
        snprintf(path, room, LICENSES "/%s", entry->d_name);
        struct stat info;
        if (lstat(path, &info) != 0 || !S_ISREG(info.st_mode)) {
            free(path);
            continue;
        }
        char **more = realloc(paths, (count + 1) * sizeof *paths);
        if (more == NULL) die(EXIT_FAILED, "out of memory: %zu file names", count + 1);
        paths = more;
        paths[count++] = path;
    }
    closedir(folder);
    if (count > 0) qsort(paths, count, sizeof *paths, compare_names);
    for (size_t i = 0; i < count; i++) {
        append_file(text, paths[i]);
        free(paths[i]);
    }
    free(paths);
}

void corpus_load(corpus *text, const char *path, size_t seq) {
    memset(text, 0, sizeof *text);
    if (path != NULL) {
        append_file(text, path);
    } else {
        append_licenses(text);
    }
    text->seq = seq;
    text->groups = text->size / ((seq + 1) * HELD_OUT_EVERY);
    if (text->groups == 0)
        die(EXIT_USAGE, "--text: %s has %zu bytes, at least %zu are needed", path ? path : LICENSES, text->size,
            (seq + 1) * HELD_OUT_EVERY);
}

void corpus_free(corpus *text) {
    free(text->bytes);
    memset(text, 0, sizeof *text);
}

const unsigned char *corpus_window(const corpus *text, rng *generator) {
    const size_t window = text->seq + 1, group = rng_below(generator, text->groups);
    return text->bytes + group * HELD_OUT_EVERY * window + rng_below(generator, (HELD_OUT_EVERY - 2) * window + 1);
}

const unsigned char *corpus_held_out(const corpus *text, size_t index) {
    return text->bytes + ((index % text->groups + 1) * HELD_OUT_EVERY - 1) * (text->seq + 1);
}

double corpus_baseline(const corpus *text, size_t count) {
    double(*after)[VOCABULARY] = allocate(VOCABULARY, sizeof *after), total[VOCABULARY] = {0}, loss = 0.0;
    for (size_t i = 1; i < text->size; i++) {
        after[text->bytes[i - 1]][text->bytes[i]] += 1.0;
        total[text->bytes[i - 1]] += 1.0;
    }
    for (size_t w = 0; w < count; w++) {
        const unsigned char *window = corpus_held_out(text, w);
        for (size_t i = 0; i < text->seq; i++) loss -= log(after[window[i]][window[i + 1]] / total[window[i]]);
    }
    free(after);
    return loss / (double)(count * text->seq);
}

/* SPDX-License-Identifier: Apache-2.0 */
#include "checkpoint.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

/* Magic, step, state of the random numbers, number of tensors; then of each: length of its name, the name, number of
   floats, and these floats of params, mean and square. In the byte order of the machine. */
static const char magic[8] = "gpt2ckpt";

static void put(FILE *file, const char *path, const void *data, size_t bytes) {
    if (fwrite(data, 1, bytes, file) != bytes) die(EXIT_FAILED, "%s: cannot be written: %s", path, strerror(errno));
}

static void get(FILE *file, const char *path, void *data, size_t bytes) {
    if (fread(data, 1, bytes, file) != bytes) die(EXIT_FAILED, "%s: cannot be read, or ends too soon", path);
}

void checkpoint_save(const char *path, const model *m, const adamw *a, const rng *generator) {
    FILE *file = fopen(path, "wb");
    if (file == NULL) die(EXIT_FAILED, "%s: %s", path, strerror(errno));
    const uint64_t head[] = {(uint64_t)a->step, generator->state, m->tensor_count};
    put(file, path, magic, sizeof magic);
    put(file, path, head, sizeof head);
    for (size_t t = 0; t < m->tensor_count; t++) {
        const tensor *p = &m->tensors[t];
        const uint64_t sizes[] = {strlen(p->name), p->count};
        put(file, path, sizes, sizeof sizes);
        put(file, path, p->name, sizes[0]);
        const float *const arrays[] = {m->params, a->mean, a->square};
        for (size_t i = 0; i < 3; i++) put(file, path, arrays[i] + p->offset, p->count * sizeof(float));
    }
    if (fclose(file) != 0) die(EXIT_FAILED, "%s: cannot be written: %s", path, strerror(errno));
}

static const tensor *named(const model *m, const char *name) {
    for (size_t t = 0; t < m->tensor_count; t++) {
        if (strcmp(m->tensors[t].name, name) == 0) return &m->tensors[t];
    }
    return NULL;
}

void checkpoint_load(const char *path, model *m, adamw *a, rng *generator) {
    FILE *file = fopen(path, "rb");
    if (file == NULL) die(EXIT_FAILED, "%s: %s", path, strerror(errno));
    char seen[sizeof magic], name[256];
    uint64_t head[3], sizes[2];
    get(file, path, seen, sizeof seen);
    get(file, path, head, sizeof head);
    if (memcmp(seen, magic, sizeof magic) != 0 || head[2] != m->tensor_count)
        die(EXIT_FAILED, "%s: not a checkpoint of this model", path);
    for (uint64_t t = 0; t < head[2]; t++) {
        get(file, path, sizes, sizeof sizes);
        if (sizes[0] >= sizeof name) die(EXIT_FAILED, "%s: not a checkpoint of this model", path);
        get(file, path, name, sizes[0]);
        name[sizes[0]] = '\0';
        const tensor *p = named(m, name);
        if (p == NULL || p->count != sizes[1])
            die(EXIT_FAILED, "%s: this model has no \"%s\" of that size", path, name);
        float *const arrays[] = {m->params, a->mean, a->square};
        for (size_t i = 0; i < 3; i++) get(file, path, arrays[i] + p->offset, p->count * sizeof(float));
    }
    fclose(file);
    a->step = (int64_t)head[0];
    generator->state = head[1];
    CHECK(mdlm_params_changed(m->block));
}

/* SPDX-License-Identifier: Apache-2.0 */
/* GPT-2 on bytes in plain C: parameters, optimizer, threads and files are this program's, layers are libmdlm's.
   README.md says what it shows. */
#include "train.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { WINDOWS = 16 * COUNT, EVERY = 50 }; /* held out, of an evaluation; steps between two */

typedef struct options {
    const char *text, *out;
    int steps, threads;
    uint64_t seed;
} options;

static const char usage[] = "usage: gpt2 [--text FILE] [--steps N] [--threads N] [--out DIR] [--seed N]\n"
                            "Trains a small GPT-2 on bytes: 10 steps in one go and as 5, saved, loaded into another "
                            "plan and other threads, and 5 more, which\n"
                            "must end in the same bits; then --steps steps (0 = none), which must end below what "
                            "counting pairs of bytes can do.\n";

static uint64_t number(const char *name, const char *text, uint64_t largest) {
    char *end = NULL;
    errno = 0;
    unsigned long long value = strtoull(text, &end, 10);
    if (text[0] < '0' || text[0] > '9' || *end != '\0' || errno != 0 || value > largest)
        die(EXIT_USAGE, "%s: expected a whole number from 0 to %llu, got \"%s\"", name, (unsigned long long)largest,
            text);
    return value;
}

static options options_read(int argc, char **argv) {
    options o = {NULL, ".", 500, 0, 1};
    for (int i = 1; i < argc; i += 2) {
        const char *name = argv[i], *value = i + 1 < argc ? argv[i + 1] : NULL;
        if (strcmp(name, "--help") == 0) {
            fputs(usage, stdout);
            exit(EXIT_SUCCESS);
        }
        static const char *const names[] = {"--text", "--out", "--steps", "--threads", "--seed"};
        enum { NAMES = sizeof names / sizeof *names };
        size_t which = 0;
        while (which < NAMES && strcmp(name, names[which]) != 0) which++;
        if (which == NAMES) die(EXIT_USAGE, "unknown argument \"%s\"; --help lists them", name);
        if (value == NULL) die(EXIT_USAGE, "%s: a value is missing", name);
        switch (which) {
        case 0: o.text = value; break;
        case 1: o.out = value; break;
        case 2: o.steps = (int)number(name, value, 1000000); break;
        case 3: o.threads = (int)number(name, value, 256); break;
        default: o.seed = number(name, value, UINT64_MAX); break;
        }
    }
    return o;
}

static void print_memory(const model *m, const way *how) {
    mdlm_memory memory = MDLM_MEMORY_INIT;
    CHECK(mdlm_block_memory(m->block, &memory));
    printf("  %-10s %d threads   saved %8llu bytes   peak %8llu bytes   parameters and gradients of the library %llu "
           "bytes\n",
           how->name, how->threads, (unsigned long long)memory.saved_bytes, (unsigned long long)memory.peak_bytes,
           (unsigned long long)(memory.parameter_bytes + memory.gradient_bytes));
}

static int same(const trainer *a, const trainer *b) {
    const size_t bytes = a->model.size * sizeof(float);
    return memcmp(a->model.params, b->model.params, bytes) == 0 &&
           memcmp(a->optimizer.mean, b->optimizer.mean, bytes) == 0 &&
           memcmp(a->optimizer.square, b->optimizer.square, bytes) == 0 && a->optimizer.step == b->optimizer.step &&
           a->generator.state == b->generator.state;
}

/* Ten steps, and five, a file, and five with another plan and other threads. */
static int resumes(const options *o, const corpus *text) {
    enum { HALF = 5 };
    static const way ways[] = {{"none", "none", 2}, {"selective", "selective", 1}, {"full", "full", 3}};
    size_t room = strlen(o->out) + sizeof "/gpt2.ckpt";
    char *path = allocate(room, 1);
    snprintf(path, room, "%s/gpt2.ckpt", o->out);
    trainer whole, first, second;
    double losses[2][2 * HALF];
    printf("%d steps in one go, and %d, saved, loaded, and %d:\n", 2 * HALF, HALF, HALF);

    trainer_create(&whole, &ways[0], text, o->seed, 2 * HALF);
    print_memory(&whole.model, &ways[0]);
    for (int i = 0; i < 2 * HALF; i++) losses[0][i] = trainer_step(&whole);

    trainer_create(&first, &ways[1], text, o->seed, 2 * HALF);
    print_memory(&first.model, &ways[1]);
    for (int i = 0; i < HALF; i++) losses[1][i] = trainer_step(&first);
    checkpoint_save(path, &first.model, &first.optimizer, &first.generator);
    trainer_destroy(&first);

    trainer_create(&second, &ways[2], text, o->seed, 2 * HALF);
    print_memory(&second.model, &ways[2]);
    checkpoint_load(path, &second.model, &second.optimizer, &second.generator);
    for (int i = HALF; i < 2 * HALF; i++) losses[1][i] = trainer_step(&second);

    for (int i = 0; i < 2 * HALF; i++) printf("  step %2d   loss %.9f   %.9f\n", i + 1, losses[0][i], losses[1][i]);
    int good = same(&whole, &second) && memcmp(losses[0], losses[1], sizeof losses[0]) == 0;
    printf("%s\n\n", good ? "The same losses, parameters and moments, to the last bit." : "THE TWO DIFFER.");
    trainer_destroy(&whole);
    trainer_destroy(&second);
    remove(path);
    free(path);
    return good;
}

static void print_text(const char *what, const unsigned char *bytes, size_t length) {
    printf("  %-9s ", what);
    for (size_t i = 0; i < length; i++) putchar(bytes[i] < 32 || bytes[i] > 126 ? ' ' : bytes[i]);
    putchar('\n');
}

static int trains(const options *o, const corpus *text) {
    const way how = {"selective", "selective", o->threads};
    trainer t;
    trainer_create(&t, &how, text, o->seed, o->steps);
    const double to_beat = corpus_baseline(text, WINDOWS);
    double start = seconds(), mean = 0.0;
    int since = 0;
    printf("  step   loss of the steps before   norm of the gradients   held-out loss\n");
    printf("%6d   %24s   %21s   %13.4f\n", 0, "", "", model_evaluate(&t.model, text, WINDOWS));
    double held_out = 0.0;
    for (int step = 1; step <= o->steps; step++) {
        mean += trainer_step(&t);
        since++;
        if (step % EVERY != 0 && step != o->steps) continue;
        held_out = model_evaluate(&t.model, text, WINDOWS);
        printf("%6d   %24.4f   %21.3f   %13.4f\n", step, mean / since, t.norm, held_out);
        fflush(stdout);
        mean = 0.0, since = 0;
    }
    int beaten = held_out < to_beat;
    printf("%d steps of %d x %d bytes, %zu parameters, in %.0f s. Counting pairs of bytes: %.4f, %s\n\n", o->steps,
           MICRO_BATCHES * COUNT, SEQ, t.model.size, seconds() - start, to_beat, beaten ? "beaten" : "NOT BEATEN");
    enum { PROMPT = 48, MORE = 96 };
    unsigned char more[MORE];
    for (size_t i = 0; i < 2; i++) {
        const unsigned char *prompt = corpus_held_out(text, 7 * i + 3);
        trainer_sample(&t, more, MORE, prompt, PROMPT);
        print_text("prompt", prompt, PROMPT);
        print_text("goes on", more, MORE);
    }
    trainer_destroy(&t);
    return beaten;
}

int main(int argc, char **argv) {
    options o = options_read(argc, argv);
    corpus text;
    corpus_load(&text, o.text, SEQ);
    printf("libmdlm %s, %zu bytes of text, one window in %d held out\n\n", mdlm_version(), text.size, HELD_OUT_EVERY);
    fflush(stdout);
    int good = resumes(&o, &text);
    if (o.steps > 0) good &= trains(&o, &text);
    corpus_free(&text);
    return good ? EXIT_SUCCESS : EXIT_FAILED;
}

/* SPDX-License-Identifier: Apache-2.0 */
/* A trainer that embeds libmdlm's block: data, embedding, loss, head and optimizer are this program's. README.md says
 * what it shows. */
#include "fill.h"
#include "options.h"
#include "report.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { CURVE_EVERY = 20, EVALUATE_EVERY = 50 };

static const struct {
    const char *name;
    setting settings[MAX_SETTINGS];
} compared[] = {
    {"none", {{"recompute_granularity", "none"}}},
    {"selective", {{"recompute_granularity", "selective"}}},
    {"full/uniform",
     {{"recompute_granularity", "full"}, {"recompute_method", "uniform"}, {"recompute_num_layers", "2"}}},
    {"full/block", {{"recompute_granularity", "full"}, {"recompute_method", "block"}, {"recompute_num_layers", "2"}}},
    {"full on host", {{"recompute_granularity", "full"}, {"cpu_offloading", "1"}, {"cpu_offloading_num_layers", "3"}}},
    {"full shared",
     {{"recompute_granularity", "full"},
      {"recompute_method", "uniform"},
      {"recompute_num_layers", "1"},
      {"distribute_saved_activations", "1"}}},
};
enum { COMPARED = sizeof compared / sizeof *compared };

/* Dropout is on in the short runs: replay has to draw the same. */
static void with_dropout(setting *to, const setting *from) {
    size_t n = 0;
    while (from[n].key != NULL) {
        to[n] = from[n];
        n++;
    }
    to[n] = (setting){"hidden_dropout", "0.1"};
    to[n + 1] = (setting){"attention_dropout", "0.1"};
    to[n + 2] = (setting){NULL, NULL};
}

typedef struct task {
    const options *o;
    const corpus *text;
} task;

static int compare_settings(const task *k, const rank *self) {
    const options *o = k->o;
    result results[COMPARED];
    memset(results, 0, sizeof results);
    /* The last needs a group whose ranks all have the whole hidden state, which they share then while it waits for
     * backward. */
    size_t rows = self->size > 1 && !self->sequence_parallel ? COMPARED : COMPARED - 1;
    for (size_t i = 0; i < rows; i++) {
        result *r = &results[i];
        r->name = compared[i].name;
        r->stats = (mdlm_tape_stats)MDLM_TAPE_STATS_INIT;
        r->memory = (mdlm_memory)MDLM_MEMORY_INIT;
        setting settings[MAX_SETTINGS + 2];
        with_dropout(settings, compared[i].settings);
        trainer t;
        trainer_create(&t, self, k->text, o->threads, o->dtype, settings, o->seed, o->compare_steps);
        CHECK(mdlm_block_memory(t.model.block, &r->memory));
        double start = seconds();
        for (int step = 0; step < o->compare_steps; step++) {
            r->loss = trainer_step(&t, &r->stats);
            if (self->number == 0) report_progress(r->name, step + 1, o->compare_steps, r->loss);
        }
        r->seconds_per_step = (seconds() - start) / o->compare_steps;
        r->hash = model_hash(&t.model, NULL);
        trainer_destroy(&t);
    }
    int same = report_same(results, rows);
    if (self->number != 0) return same;
    report_progress_end();
    printf("%d steps from the same seed under each setting, with dropout%s:\n\n", o->compare_steps,
           self->size > 1 ? "; bytes of one rank" : "");
    report_table(results, rows);
    printf("\n%s\n\n",
           same ? "The same loss and the same parameters, to the last bit, in every row." : "THE ROWS DIFFER.");
    fflush(stdout);
    return same;
}

static void add_point(curve *c, int step, double loss) {
    c->step[c->count] = step;
    c->loss[c->count++] = loss;
}

static void curve_create(curve *c, int steps, int every) {
    size_t room = (size_t)(steps / every) + 2;
    *c = (curve){0, allocate(room, sizeof *c->step), allocate(room, sizeof *c->loss)};
}

static void curve_free(curve *c) {
    free(c->step);
    free(c->loss);
}

/* The curve as picture and as numbers. */
static void write_curves(const options *o, const curve *training, const curve *held_out, double to_beat) {
    size_t room = strlen(o->out) + sizeof "/loss.svg";
    char *path = allocate(room, 1);
    snprintf(path, room, "%s/loss.csv", o->out);
    if (!report_csv(path, training, held_out)) die(EXIT_FAILED, "%s cannot be written", path);
    snprintf(path, room, "%s/loss.svg", o->out);
    if (!report_svg(path, training, held_out, to_beat)) die(EXIT_FAILED, "%s cannot be written", path);
    printf("The curve is in %s, its numbers are in loss.csv\n", path);
    free(path);
}

static int train_long(const task *k, const rank *self) {
    const options *o = k->o;
    const int prints = self->number == 0;
    const setting settings[] = {{"recompute_granularity", "none"}, {NULL, NULL}};
    trainer t;
    trainer_create(&t, self, k->text, o->threads, o->dtype, settings, o->seed, o->steps);
    baseline *counts = allocate(1, sizeof *counts);
    baseline_count(counts, k->text);
    double to_beat = trainer_baseline(&t, counts);
    curve training, held_out;
    curve_create(&training, o->steps, CURVE_EVERY);
    curve_create(&held_out, o->steps, EVALUATE_EVERY);

    double start = seconds(), sum = 0.0;
    add_point(&held_out, 0, trainer_evaluate(&t));
    for (int step = 1; step <= o->steps; step++) {
        double loss = trainer_step(&t, NULL);
        if (prints) report_progress("long run", step, o->steps, loss);
        sum += loss;
        if (step % CURVE_EVERY == 0) {
            add_point(&training, step - CURVE_EVERY / 2, sum / CURVE_EVERY);
            sum = 0.0;
        }
        if (step % EVALUATE_EVERY == 0 || step == o->steps) add_point(&held_out, step, trainer_evaluate(&t));
    }
    double end = held_out.loss[held_out.count - 1];
    int below = end < to_beat;
    size_t size = 0;
    model_hash(&t.model, &size);
    if (prints) {
        report_progress_end();
        printf(
            "%d steps of %d x %d bytes, %zu parameters, in %.0f s: held-out loss %.4f at the start, %.4f at the end\n",
            o->steps, COUNT, SEQ, size, seconds() - start, held_out.loss[0], end);
        printf("counting baseline under the same masks (byte before where visible, frequency elsewhere): %.4f, %s\n\n",
               to_beat, below ? "beaten" : "NOT BEATEN");
    }
    fill_passages(prints ? stdout : NULL, &t);
    if (prints) write_curves(o, &training, &held_out, to_beat);
    curve_free(&training);
    curve_free(&held_out);
    free(counts);
    trainer_destroy(&t);
    return below;
}

/* What every rank does. */
static int run_rank(const rank *self, void *payload) {
    const task *k = payload;
    int good = 1;
    if (k->o->compare_steps > 0) good &= compare_settings(k, self);
    if (k->o->steps > 0) good &= train_long(k, self);
    return good;
}

int main(int argc, char **argv) {
    int number = 0, processes = group_processes(&number);
    if (number > 0) die_quietly();
    options o = options_read(argc, argv);
    corpus text;
    corpus_load(&text, o.text, SEQ);
    if (number == 0) {
        printf("libmdlm %s, %s, %zu bytes of text, one in %d held out", mdlm_version(), o.dtype, text.size,
               HELD_OUT_EVERY);
        if (o.ranks > 1)
            printf("; %d ranks: %s%s", o.ranks, processes > 1 ? "processes" : "threads",
                   o.sequence_parallel ? ", sequence parallel" : "");
        printf("\n\n");
        fflush(stdout);
    }
    task k = {&o, &text};
    int good = group_run(o.ranks, o.sequence_parallel, run_rank, &k);
    corpus_free(&text);
    return good ? EXIT_SUCCESS : EXIT_FAILED;
}

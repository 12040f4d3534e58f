/* SPDX-License-Identifier: Apache-2.0 */
#include "fill.h"

#include <math.h>
#include <stdlib.h>

enum { ROUNDS = 32, PASSAGES = 3 };

/* The likeliest byte of one row of logits, and how likely it is. */
static unsigned char likeliest(const float *row, double *chance) {
    size_t best = 0;
    for (size_t c = 1; c < BYTES; c++) best = row[c] > row[best] ? c : best;
    double sum = 0.0;
    for (size_t c = 0; c < BYTES; c++) sum += exp((double)row[c] - row[best]);
    *chance = 1.0 / sum;
    return (unsigned char)best;
}

/* Fills in the bytes that the model is surest of, and asks again with those visible: an equal share in every round. */
static void unmask(model *m, sample *s) {
    double *chance = allocate(s->seq, sizeof *chance);
    unsigned char *guess = allocate(s->seq, 1);
    for (int left = ROUNDS; left > 0; left--) {
        sample_weigh(s);
        if (s->masked == 0) break;
        const float *logits = model_predict(m, s);
        for (size_t i = 0; i < s->masked; i++) guess[i] = likeliest(logits + i * BYTES, &chance[i]);
        for (size_t fill = (s->masked + (size_t)left - 1) / (size_t)left; fill > 0; fill--) {
            size_t surest = 0;
            for (size_t i = 1; i < s->masked; i++) surest = chance[i] > chance[surest] ? i : surest;
            s->input[s->place[surest]] = guess[surest];
            chance[surest] = -1.0;
        }
    }
    free(chance);
    free(guess);
}

static void print_line(FILE *out, const char *title, const sample *s, int original) {
    if (out == NULL) return;
    fprintf(out, "  %-10s", title);
    for (size_t i = 0; i < s->seq; i++) {
        int c = original ? s->target[i] : s->input[i];
        fputc(c == MASK ? '_' : c >= ' ' && c <= '~' ? c : ' ', out);
    }
    fputc('\n', out);
}

void fill_passages(FILE *out, trainer *t) {
    sample s;
    sample_create(&s, SEQ, 1);
    rng generator = rng_stream(t->seed, 'F');
    if (out != NULL) fprintf(out, "Held-out passages, about half of each hidden, filled in by the model:\n");
    for (int passage = 0; passage < PASSAGES; passage++) {
        size_t hidden = 0, same = 0;
        sample_hide(&s, 0, corpus_held_out(t->text, rng_below(&generator, t->text->groups)), 0.5, &generator);
        for (size_t i = 0; i < SEQ; i++) hidden += s.input[i] == MASK;
        print_line(out, "text", &s, 1);
        print_line(out, "hidden", &s, 0);
        unmask(&t->model, &s);
        print_line(out, "filled in", &s, 0);
        for (size_t i = 0; i < SEQ; i++) same += s.input[i] == s.target[i];
        if (out != NULL) fprintf(out, "  %zu of %zu hidden bytes are right\n\n", same - (SEQ - hidden), hidden);
    }
    sample_free(&s);
}

/* SPDX-License-Identifier: Apache-2.0 */
#include "loss.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

void sample_create(sample *s, size_t seq, size_t count) {
    memset(s, 0, sizeof *s);
    s->seq = seq;
    s->count = count;
    s->input = allocate(seq * count, sizeof *s->input);
    s->target = allocate(seq * count, sizeof *s->target);
    s->place = allocate(seq * count, sizeof *s->place);
    s->weight = allocate(seq * count, sizeof *s->weight);
}

void sample_free(sample *s) {
    free(s->input);
    free(s->target);
    free(s->place);
    free(s->weight);
    memset(s, 0, sizeof *s);
}

void sample_hide(sample *s, size_t j, const unsigned char *bytes, double level, rng *generator) {
    size_t hidden = 0;
    for (size_t i = 0; i < s->seq; i++) {
        size_t n = i * s->count + j;
        int hide = rng_uniform(generator) < level;
        s->target[n] = bytes[i];
        s->input[n] = hide ? MASK : bytes[i];
        hidden += (size_t)hide;
    }
    if (hidden == 0) s->input[rng_below(generator, s->seq) * s->count + j] = MASK;
}

void sample_weigh(sample *s) {
    s->masked = 0;
    for (size_t n = 0; n < s->seq * s->count; n++) {
        if (s->input[n] == MASK) s->place[s->masked++] = n;
    }
    for (size_t j = 0; j < s->count; j++) {
        size_t hidden = 0;
        for (size_t m = 0; m < s->masked; m++) hidden += s->place[m] % s->count == j;
        double share = (double)hidden / (double)s->seq;
        for (size_t m = 0; m < s->masked; m++) {
            if (s->place[m] % s->count == j) s->weight[m] = (float)(1.0 / ((double)s->seq * share * (double)s->count));
        }
    }
}

double masked_loss(const sample *s, float *logits) {
    double loss = 0.0;
    for (size_t m = 0; m < s->masked; m++) {
        float *row = logits + m * BYTES;
        size_t target = s->target[s->place[m]];
        float largest = row[0];
        for (size_t c = 1; c < BYTES; c++) largest = row[c] > largest ? row[c] : largest;
        float of_target = row[target] - largest;
        double sum = 0.0;
        for (size_t c = 0; c < BYTES; c++) {
            row[c] = expf(row[c] - largest);
            sum += row[c];
        }
        loss += s->weight[m] * (log(sum) - of_target);
        float scale = (float)(s->weight[m] / sum);
        for (size_t c = 0; c < BYTES; c++) row[c] *= scale;
        row[target] -= s->weight[m];
    }
    return loss;
}

void baseline_count(baseline *b, const corpus *text) {
    memset(b, 0, sizeof *b);
    double before[BYTES] = {0};
    for (size_t i = 0; i < text->size; i++) {
        b->frequency[text->bytes[i]] += 1.0;
        if (i == 0) continue;
        b->after[text->bytes[i - 1]][text->bytes[i]] += 1.0;
        before[text->bytes[i - 1]] += 1.0;
    }
    for (size_t p = 0; p < BYTES; p++) {
        b->frequency[p] /= (double)text->size;
        for (size_t c = 0; c < BYTES && before[p] > 0.0; c++) b->after[p][c] /= before[p];
    }
}

double baseline_loss(const baseline *b, const sample *s) {
    double loss = 0.0;
    for (size_t m = 0; m < s->masked; m++) {
        size_t n = s->place[m];
        int visible = n >= s->count && s->input[n - s->count] != MASK;
        double chance = visible ? b->after[s->target[n - s->count]][s->target[n]] : b->frequency[s->target[n]];
        loss -= s->weight[m] * log(chance);
    }
    return loss;
}

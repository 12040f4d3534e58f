/* SPDX-License-Identifier: Apache-2.0 */
#include "train.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

static const double peak_rate = 3e-3, last_rate = 1e-4;
static const int warmup = 40;

void trainer_create(trainer *t, const way *how, const corpus *text, uint64_t seed, int steps) {
    memset(t, 0, sizeof *t);
    model_create(&t->model, how, seed);
    adamw_create(&t->optimizer, &t->model);
    t->text = text;
    t->seed = seed;
    t->generator.state = seed;
    t->steps = steps;
}

void trainer_destroy(trainer *t) {
    adamw_destroy(&t->optimizer);
    model_destroy(&t->model);
}

static double learning_rate(int64_t step, int steps) {
    if (step < warmup) return peak_rate * (double)(step + 1) / warmup;
    double done = (double)(step - warmup) / (steps > warmup ? steps - warmup : 1);
    return last_rate + (peak_rate - last_rate) * 0.5 * (1.0 + cos(3.141592653589793 * (done < 1.0 ? done : 1.0)));
}

double trainer_step(trainer *t) {
    const int64_t step = t->optimizer.step;
    double loss = model_gradients(&t->model, t->text, &t->generator, t->seed, (uint32_t)step);
    t->norm = adamw_step(&t->optimizer, &t->model, learning_rate(step, t->steps));
    return loss;
}

static unsigned char draw(const float *logits, double temperature, rng *generator) {
    double largest = logits[0], sum = 0.0;
    for (size_t c = 1; c < VOCABULARY; c++) largest = logits[c] > largest ? logits[c] : largest;
    for (size_t c = 0; c < VOCABULARY; c++) sum += exp((logits[c] - largest) / temperature);
    double left = rng_uniform(generator) * sum;
    size_t c = 0;
    while (c + 1 < VOCABULARY && (left -= exp((logits[c] - largest) / temperature)) >= 0.0) c++;
    return (unsigned char)c;
}

void trainer_sample(trainer *t, unsigned char *to, size_t length, const unsigned char *prompt, size_t prompt_length) {
    unsigned char *all = allocate(prompt_length + length, 1);
    memcpy(all, prompt, prompt_length);
    for (size_t end = prompt_length; end < prompt_length + length; end++) {
        size_t seen = end < SEQ ? end : SEQ; /* the last SEQ bytes: there are no more positions */
        all[end] = draw(model_next(&t->model, all + end - seen, seen), 0.7, &t->generator);
    }
    memcpy(to, all + prompt_length, length);
    free(all);
}

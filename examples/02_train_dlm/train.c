/* SPDX-License-Identifier: Apache-2.0 */
#include "train.h"

#include <math.h>
#include <string.h>

/* Twice the rate learns as well, but blows up differences of rounding: runs on one rank and on two would part within a
 * hundred steps. */
static const double peak_rate = 1.5e-3, last_rate = 1e-4;
static const int warmup = 150;

void trainer_create(trainer *t, const rank *self, const corpus *text, int threads, const char *dtype,
                    const setting *settings, uint64_t seed, int steps) {
    memset(t, 0, sizeof *t);
    model_create(&t->model, self, threads, dtype, SEQ, COUNT, settings, seed);
    adamw_create(&t->optimizer, &t->model);
    sample_create(&t->sample, SEQ, COUNT);
    t->text = text;
    t->seed = seed;
    t->generator = rng_stream(seed, 'T');
    t->steps = steps;
}

void trainer_destroy(trainer *t) {
    sample_free(&t->sample);
    adamw_destroy(&t->optimizer);
    model_destroy(&t->model);
}

/* Each level is uniform on its own; together they are spread evenly, which calms the mean. */
static double level_of(double shift, size_t j, size_t count) {
    double level = shift + (double)j / (double)count;
    return level - floor(level);
}

static double learning_rate(int step, int steps) {
    if (step < warmup) return peak_rate * (step + 1) / warmup;
    double done = (double)(step - warmup) / (steps > warmup ? steps - warmup : 1);
    return last_rate + (peak_rate - last_rate) * 0.5 * (1.0 + cos(3.141592653589793 * done));
}

double trainer_step(trainer *t, mdlm_tape_stats *stats) {
    double shift = rng_uniform(&t->generator);
    for (size_t j = 0; j < COUNT; j++)
        sample_hide(&t->sample, j, corpus_training_window(t->text, &t->generator), level_of(shift, j, COUNT),
                    &t->generator);
    sample_weigh(&t->sample);
    double loss = model_gradients(&t->model, &t->sample, t->seed, (uint32_t)t->step, stats);
    adamw_step(&t->optimizer, learning_rate(t->step, t->steps));
    CHECK(mdlm_params_changed(t->model.block));
    t->step++;
    return loss;
}

/* The e-th evaluation sample. The levels of all of them together are spread evenly over (0, 1). */
static void draw_evaluation(trainer *t, size_t e) {
    rng generator = rng_stream(t->seed, 'E' + 256 * (e + 1));
    for (size_t j = 0; j < COUNT; j++) {
        size_t index = e * COUNT + j;
        double level = (double)(index * 37 % (EVALUATIONS * COUNT)) + 0.5;
        sample_hide(&t->sample, j, corpus_held_out(t->text, index), level / (EVALUATIONS * COUNT), &generator);
    }
    sample_weigh(&t->sample);
}

double trainer_evaluate(trainer *t) {
    double sum = 0.0;
    for (size_t e = 0; e < EVALUATIONS; e++) {
        draw_evaluation(t, e);
        sum += masked_loss(&t->sample, model_predict(&t->model, &t->sample));
    }
    return sum / EVALUATIONS;
}

double trainer_baseline(trainer *t, const baseline *b) {
    double sum = 0.0;
    for (size_t e = 0; e < EVALUATIONS; e++) {
        draw_evaluation(t, e);
        sum += baseline_loss(b, &t->sample);
    }
    return sum / EVALUATIONS;
}

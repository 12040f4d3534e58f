/* SPDX-License-Identifier: Apache-2.0 */
#define _POSIX_C_SOURCE 200809L
#include "report.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

void report_table(const result *results, size_t count) {
    printf("%-14s %12s %12s %12s %8s  %-12s %s\n", "setting", "saved bytes", "host bytes", "peak bytes", "s/step",
           "final loss", "all parameters");
    for (size_t i = 0; i < count; i++) {
        const result *r = &results[i];
        printf("%-14s %12" PRIu64 " %12" PRIu64 " %12" PRIu64 " %8.4f  %-12.9g %016" PRIx64 "\n", r->name,
               r->stats.saved_bytes, r->stats.host_bytes, r->memory.peak_bytes, r->seconds_per_step, r->loss, r->hash);
    }
}

int report_same(const result *results, size_t count) {
    for (size_t i = 1; i < count; i++) {
        if (memcmp(&results[i].loss, &results[0].loss, sizeof results[0].loss) != 0 ||
            results[i].hash != results[0].hash)
            return 0;
    }
    return 1;
}

void report_progress(const char *name, int step, int steps, double loss) {
    if (isatty(STDERR_FILENO)) fprintf(stderr, "\r%-14s step %d of %d, loss %.4f  ", name, step, steps, loss);
}

void report_progress_end(void) {
    if (isatty(STDERR_FILENO)) fprintf(stderr, "\r%60s\r", "");
}

int report_csv(const char *path, const curve *training, const curve *held_out) {
    FILE *file = fopen(path, "w");
    if (file == NULL) return 0;
    fputs("step,training,held_out\n", file);
    for (size_t i = 0, k = 0; i < training->count || k < held_out->count;) {
        if (k == held_out->count || (i < training->count && training->step[i] < held_out->step[k])) {
            fprintf(file, "%d,%.9g,\n", training->step[i], training->loss[i]);
            i++;
        } else {
            fprintf(file, "%d,,%.9g\n", held_out->step[k], held_out->loss[k]);
            k++;
        }
    }
    int failed = ferror(file);
    return fclose(file) == 0 && !failed;
}

enum { WIDTH = 760, HEIGHT = 440, LEFT = 64, RIGHT = 740, TOP = 48, BOTTOM = 392 };

typedef struct frame {
    double last_step, lowest, highest;
} frame;

static double across(const frame *f, double step) { return LEFT + (RIGHT - LEFT) * step / f->last_step; }

static double down(const frame *f, double loss) {
    return BOTTOM - (BOTTOM - TOP) * (loss - f->lowest) / (f->highest - f->lowest);
}

static void include(frame *f, const curve *c) {
    for (size_t i = 0; i < c->count; i++) {
        f->last_step = fmax(f->last_step, c->step[i]);
        f->lowest = fmin(f->lowest, c->loss[i]);
        f->highest = fmax(f->highest, c->loss[i]);
    }
}

/* 1, 2 or 5 times a power of ten, so that at most `most` of them fill the length. */
static double tick(double length, int most) {
    double unit = pow(10.0, floor(log10(length / most)));
    const double factors[] = {1.0, 2.0, 5.0};
    for (size_t i = 0; i < 3; i++) {
        if (length / (unit * factors[i]) <= most) return unit * factors[i];
    }
    return unit * 10.0;
}

static void draw_axes(FILE *file, const frame *f) {
    double each = tick(f->highest - f->lowest, 8);
    for (double loss = ceil(f->lowest / each) * each; loss <= f->highest + 1e-9; loss += each) {
        fprintf(file, "<line x1=\"%d\" y1=\"%.1f\" x2=\"%d\" y2=\"%.1f\" stroke=\"#ddd\"/>\n", LEFT, down(f, loss),
                RIGHT, down(f, loss));
        fprintf(file, "<text x=\"%d\" y=\"%.1f\" text-anchor=\"end\">%.1f</text>\n", LEFT - 8, down(f, loss) + 4.0,
                loss);
    }
    each = tick(f->last_step, 8);
    for (double step = 0.0; step <= f->last_step + 1e-9; step += each) {
        fprintf(file, "<line x1=\"%.1f\" y1=\"%d\" x2=\"%.1f\" y2=\"%d\" stroke=\"#444\"/>\n", across(f, step), BOTTOM,
                across(f, step), BOTTOM + 5);
        fprintf(file, "<text x=\"%.1f\" y=\"%d\" text-anchor=\"middle\">%.0f</text>\n", across(f, step), BOTTOM + 19,
                step);
    }
    fprintf(file, "<path d=\"M%d %dV%dH%d\" fill=\"none\" stroke=\"#444\"/>\n", LEFT, TOP, BOTTOM, RIGHT);
    fprintf(file, "<text x=\"%d\" y=\"%d\" text-anchor=\"middle\">step</text>\n", (LEFT + RIGHT) / 2, BOTTOM + 38);
    fprintf(
        file,
        "<text x=\"18\" y=\"%d\" text-anchor=\"middle\" transform=\"rotate(-90 18 %d)\">loss (nats per byte)</text>\n",
        (TOP + BOTTOM) / 2, (TOP + BOTTOM) / 2);
}

static void draw_curve(FILE *file, const frame *f, const curve *c, const char *color, double width) {
    fprintf(file, "<polyline clip-path=\"url(#inside)\" fill=\"none\" stroke=\"%s\" stroke-width=\"%.1f\" points=\"",
            color, width);
    for (size_t i = 0; i < c->count; i++)
        fprintf(file, "%s%.1f,%.1f", i ? " " : "", across(f, c->step[i]), down(f, c->loss[i]));
    fputs("\"/>\n", file);
}

int report_svg(const char *path, const curve *training, const curve *held_out, double baseline) {
    FILE *file = fopen(path, "w");
    if (file == NULL) return 0;
    frame f = {1.0, baseline, baseline};
    include(&f, training);
    include(&f, held_out);
    f.highest =
        fmin(f.highest, baseline + 1.0); /* the first steps fall from far above; what matters is around the baseline */
    double margin = 0.05 * (f.highest - f.lowest) + 0.01;
    f.lowest -= margin;
    f.highest += margin;
    fprintf(file,
            "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 %d %d\" font-family=\"sans-serif\" "
            "font-size=\"12\">\n",
            WIDTH, HEIGHT);
    fprintf(file, "<rect width=\"%d\" height=\"%d\" fill=\"#fff\"/>\n", WIDTH, HEIGHT);
    fprintf(file, "<clipPath id=\"inside\"><rect x=\"%d\" y=\"%d\" width=\"%d\" height=\"%d\"/></clipPath>\n", LEFT,
            TOP, RIGHT - LEFT, BOTTOM - TOP);
    fprintf(file, "<text x=\"%d\" y=\"24\" font-size=\"15\">Masked-diffusion loss of the byte model</text>\n", LEFT);
    draw_axes(file, &f);
    draw_curve(file, &f, training, "#9bbbd8", 1.0);
    draw_curve(file, &f, held_out, "#c0392b", 2.0);
    double level = down(&f, baseline);
    fprintf(file, "<line x1=\"%d\" y1=\"%.1f\" x2=\"%d\" y2=\"%.1f\" stroke=\"#222\" stroke-dasharray=\"6 4\"/>\n",
            LEFT, level, RIGHT, level);
    fprintf(file, "<text x=\"%d\" y=\"%d\" text-anchor=\"end\" fill=\"#5b8db8\">training</text>\n", RIGHT - 8,
            TOP + 14);
    fprintf(file, "<text x=\"%d\" y=\"%d\" text-anchor=\"end\" fill=\"#c0392b\">held out</text>\n", RIGHT - 8,
            TOP + 30);
    fprintf(file, "<text x=\"%d\" y=\"%d\" text-anchor=\"end\">- - counting baseline %.3f</text>\n", RIGHT - 8,
            TOP + 46, baseline);
    fputs("</svg>\n", file);
    int failed = ferror(file);
    return fclose(file) == 0 && !failed;
}

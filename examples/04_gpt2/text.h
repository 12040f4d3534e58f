/* SPDX-License-Identifier: Apache-2.0 */
/* The text that the model learns: bytes, a tenth of them held out. */
#ifndef TEXT_H
#define TEXT_H

#include "util.h"

enum { VOCABULARY = 256, HELD_OUT_EVERY = 10 };

/* A window is seq + 1 bytes: those that the model sees, and behind each the one that it should say. The text is cut
   into groups of HELD_OUT_EVERY windows. The last of each group is held out; training reads windows that begin anywhere
   before it in the group. */
typedef struct corpus {
    unsigned char *bytes;
    size_t size, seq, groups;
} corpus;

/* path NULL = the licence texts that Debian and its relatives install, in the order of their names. */
void corpus_load(corpus *text, const char *path, size_t seq);
void corpus_free(corpus *text);

const unsigned char *corpus_window(const corpus *text, rng *generator);
/* index counts the held-out windows; past the last it starts again at the first. */
const unsigned char *corpus_held_out(const corpus *text, size_t index);

/* Mean cross-entropy on count held-out windows of guessing each byte by how often it follows the byte before it in the
   whole text, the held-out bytes included: a model that is better has not been favoured. */
double corpus_baseline(const corpus *text, size_t count);

#endif

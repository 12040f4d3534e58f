/* SPDX-License-Identifier: Apache-2.0 */
/* The text that the model learns: bytes, some of them held out for evaluation. */
#ifndef TEXT_H
#define TEXT_H

#include "util.h"

/* The text is cut into groups of HELD_OUT_EVERY blocks of seq bytes. The last block of each group is held out; training
   reads windows that begin anywhere within the others of a group. So both parts come from everywhere in the text and
   never overlap. */
enum { HELD_OUT_EVERY = 10 };

typedef struct corpus {
    unsigned char *bytes;
    size_t size;
    size_t seq;
    size_t groups;
} corpus;

/* path NULL = the licence texts that Debian and its relatives install, in the order of their names. */
void corpus_load(corpus *text, const char *path, size_t seq);
void corpus_free(corpus *text);

const unsigned char *corpus_training_window(const corpus *text, rng *generator);
/* index counts the held-out blocks; past the last it starts again at the first. */
const unsigned char *corpus_held_out(const corpus *text, size_t index);

#endif

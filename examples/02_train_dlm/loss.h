/* SPDX-License-Identifier: Apache-2.0 */
/* The masked-diffusion loss, and what it has to beat. */
#ifndef LOSS_H
#define LOSS_H

#include "text.h"

enum { BYTES = 256, MASK = 256, INPUTS = 257 }; /* the model reads bytes and a mask token; it predicts bytes */

/* Sequences, partly hidden. Token i of sequence j is element i * count + j, as in the block's [s, b, h]. */
typedef struct sample {
    size_t seq;
    size_t count;
    uint16_t *input;       /* a byte, or MASK */
    unsigned char *target; /* the byte, always */
    size_t masked;
    size_t *place; /* the masked elements, rising; room for all */
    float *weight; /* of each masked element in the loss */
} sample;

void sample_create(sample *s, size_t seq, size_t count);
void sample_free(sample *s);

/* Hides each byte of the j-th sequence with probability level, and at least one. */
void sample_hide(sample *s, size_t j, const unsigned char *bytes, double level, rng *generator);
/* After all sequences are hidden: lists the masked elements with their weights. The loss of a sequence is its
   cross-entropy over masked bytes, divided by its length and by the share that is masked; the loss of the sample is the
   mean over sequences. */
void sample_weigh(sample *s);

/* Loss from the logits of the masked elements ([masked, BYTES]), which are overwritten with the gradient of the loss.
 */
double masked_loss(const sample *s, float *logits);

/* What counting can do: the frequency of each byte, and of each byte after the one before it, over the whole text. It
   has seen the held-out bytes too, so a model that is better has not been favoured. */
typedef struct baseline {
    double frequency[BYTES];
    double after[BYTES][BYTES];
} baseline;

void baseline_count(baseline *b, const corpus *text);
/* The same loss under the same mask: given the byte before where that is visible, by frequency elsewhere. */
double baseline_loss(const baseline *b, const sample *s);

#endif

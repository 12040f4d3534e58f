/* SPDX-License-Identifier: Apache-2.0 */
/* Text from the model: half of some held-out passages is hidden and filled in again. */
#ifndef FILL_H
#define FILL_H

#include "train.h"

#include <stdio.h>

/* All ranks call it together; out NULL on those that print nothing. */
void fill_passages(FILE *out, trainer *t);

#endif

/* Text from the model: half of some held-out passages is hidden and filled in again. */
#ifndef FILL_H
#define FILL_H

#include "train.h"

#include <stdio.h>

void fill_passages(FILE *out, trainer *t);

#endif

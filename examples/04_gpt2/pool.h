/* SPDX-License-Identifier: Apache-2.0 */
/* The trainer's threads, which the block runs on: OpenMP's. */
#ifndef POOL_H
#define POOL_H

#include <mdlm/mdlm.h>

/* threads 0 = as many as OpenMP takes by itself. One where this program was built without OpenMP. */
mdlm_threadpool pool_of(int threads);

#endif

/* SPDX-License-Identifier: Apache-2.0 */
#include "pool.h"

#if defined(_OPENMP)
#include <omp.h>

/* Each index once, on any thread; the number within the team tells workers apart, and the end of the loop waits for
   all. */
static void parallel_for(void *payload, int64_t count, void (*task)(void *argument, int64_t index, int32_t worker),
                         void *argument) {
    const int threads = (int)(intptr_t)payload;
#pragma omp parallel for schedule(dynamic) num_threads(threads)
    for (int64_t i = 0; i < count; i++) task(argument, i, omp_get_thread_num());
}

mdlm_threadpool pool_of(int threads) {
    if (threads == 0) threads = omp_get_max_threads();
    return (mdlm_threadpool){sizeof(mdlm_threadpool), threads, 0, parallel_for, (void *)(intptr_t)threads};
}
#else
static void one_after_another(void *payload, int64_t count, void (*task)(void *argument, int64_t index, int32_t worker),
                              void *argument) {
    (void)payload;
    for (int64_t i = 0; i < count; i++) task(argument, i, 0);
}

mdlm_threadpool pool_of(int threads) {
    (void)threads;
    return (mdlm_threadpool){sizeof(mdlm_threadpool), 1, 0, one_after_another, NULL};
}
#endif

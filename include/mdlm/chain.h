/* libmdlm: the planner for layers that are not the library's.  SPDX-License-Identifier: Apache-2.0

   A chain of layers, each with policies that say what they retain, need and cost, in JSON of format
   "mdlm-chain", version 1 (`mdlm plan --help` explains it). Needs no context, config or device; may
   be called on any threads at once. Rules as in mdlm.h. */
#ifndef MDLM_CHAIN_H
#define MDLM_CHAIN_H

#include <mdlm/mdlm.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef struct mdlm_chain_options {
    size_t struct_size;
    int64_t label_cap;                   /* bounds time and memory: as many partial plans are kept
                                            for each layer (range >= 0, default 0 = 48 MiB of them
                                            in all, for a frontier 128 MiB and at most 65536 a
                                            layer) */
    int32_t (*cancelled)(void *payload); /* see Cancelling in mdlm.h (default NULL = never) */
    void *cancelled_payload;
} mdlm_chain_options;
#define MDLM_CHAIN_OPTIONS_INIT { sizeof(mdlm_chain_options), 0, NULL, NULL }
MDLM_API mdlm_status mdlm_chain_options_init(mdlm_chain_options *options, size_t struct_size);

/* Both functions: text need not end with 0; options NULL = defaults. FORMAT or OVERFLOW names the
   place of a fault. They write JSON as (buf, cap, out_len) is described at mdlm_config_get; an
   answer that is longer than cap is computed again by the next call, so start with a buffer that is
   likely to do.

   The plan with the least extra time whose peak is at most budget_bytes; of those the one with the
   lowest peak; of those the first by the order of policies.

       {"feasible": true, "optimal": true, "gap_ns": 0, "peak_bytes": 24, "extra_ns": 15,
        "minimum_budget_bytes": 21, "plan": [...]}

   With feasible false only minimum_budget_bytes follows, the smallest budget that would do. If more
   partial plans than label_cap were needed, optimal is false and no plan takes less than extra_ns -
   gap_ns. */
MDLM_API mdlm_status mdlm_chain_solve(const char *text, size_t length, uint64_t budget_bytes,
                                      const mdlm_chain_options *options, char *buf, size_t cap,
                                      size_t *out_len);
/* All plans that are best at some budget, peaks rising and times falling; as many come back as fit
   64 MiB. With optimal false a plan may take up to gap_ns less at some budget.

       {"frontier": [{"peak_bytes": 21, "extra_ns": 15, "plan": [...]}, ...],
        "optimal": true, "gap_ns": 0} */
MDLM_API mdlm_status mdlm_chain_frontier(const char *text, size_t length,
                                         const mdlm_chain_options *options, char *buf, size_t cap,
                                         size_t *out_len);

#ifdef __cplusplus
}
#endif
#endif

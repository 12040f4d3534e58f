// SPDX-License-Identifier: Apache-2.0
// One drawn case of the property tests: a model, a plan, shapes, micro-batches and the order in which their passes run.
// All of it follows from the seed.
#pragma once
#include <cstdint>
#include <string>
#include <vector>

#include "mdlm/mdlm.h"
#include "support/split_mix.hpp"

namespace property {

using mdlm_test::Random;

struct MicroBatch {
    mdlm_batch batch = MDLM_BATCH_INIT;  // its cu_seqlens stay NULL: documents are handed over when it runs
    std::vector<int32_t> documents;      // offsets; empty: not packed
    bool documents_by_tape = false;      // through mdlm_tape_set_documents instead of the batch
    bool dx_over_dy = false;
    int64_t elements(int64_t hidden) const { return batch.seq_length * batch.micro_batch_size * hidden; }
};

struct Event {
    enum class Kind {
        forward,
        backward,
        evaluate,
        abandon
    } kind = Kind::forward;  // abandon: a forward whose tape is reset
    size_t micro = 0;
    bool training = false;  // of an evaluation
};

// Edits on top of what the config's recompute settings say.
struct PlanEdits {
    std::vector<std::pair<int64_t, int64_t>> units;  // first, count
    int64_t tensors = 0;                             // per cent of the tensors that are set at random,
    int64_t keep = 1, replay = 1, host = 1;          // with these weights,
    int64_t shard = 0;                               // and this for inputs of units
    uint64_t seed = 0;
    bool through_json = false;
};

struct Draw {
    uint64_t seed = 0;
    mdlm_config config = MDLM_CONFIG_INIT;
    mdlm_shape shape = MDLM_SHAPE_INIT;
    PlanEdits edits;
    enum class Freeze { nothing, first_layers, some, all_but_one, everything } freeze = Freeze::nothing;
    int64_t frozen_layers = 0;
    std::vector<MicroBatch> micro;
    std::vector<Event> events;
    int32_t threads = 1, other_threads = 0;  // other_threads 0: not run a second time
    bool coarse = false;                     // parameters, x and dy have values that bf16 holds, whatever the dtype
    size_t element() const {
        return config.params_dtype == MDLM_DTYPE_BF16 ? 2 : config.params_dtype == MDLM_DTYPE_F64 ? 8 : 4;
    }
    bool grouped() const {
        return config.num_query_groups != 0 && config.num_query_groups < config.num_attention_heads;
    }
    bool packed() const;
    bool drops() const;
};

Draw draw(uint64_t seed);
// For a group of t ranks.
Draw draw_for_group(uint64_t seed, int64_t t);
// The same step on one rank, in another dtype (DEFAULT: its own).
Draw on_one_rank(Draw draw, mdlm_dtype dtype = MDLM_DTYPE_DEFAULT);
// All micro-batches have exactly the reserved shape, and every pass of the plan runs.
Draw at_the_bound(Draw draw);
// All tapes are out at once; then the highest stack is used, too.
bool fills_tapes(const Draw &draw);
// In one line.
std::string describe(const Draw &draw);
// Is the parameter with an index frozen, of `count`?
bool frozen(const Draw &draw, int64_t index, int64_t layer, int64_t count);
// Makes the draw's plan out of the one that follows from its config. Returns the first status that is not OK.
mdlm_status edit(const Draw &draw, mdlm_plan *plan);
// Makes it the plan that keeps every tensor and replays nothing.
mdlm_status keep_everything(const Draw &draw, mdlm_plan *plan);

}  // namespace property

// SPDX-License-Identifier: Apache-2.0
// What every layer keeps: storage classes and units. Settings become policies in policy.cpp and nowhere else.
#pragma once
#include <cstdint>
#include <memory>
#include <vector>

#include "plan/item.hpp"

namespace mdlm {

enum class Storage : int32_t {
    keep = MDLM_STORAGE_KEEP,
    replay = MDLM_STORAGE_REPLAY,
    shard = MDLM_STORAGE_SHARD,
    host = MDLM_STORAGE_HOST
};
const char *name_of(Storage s);

struct Unit {
    int64_t first = 0, count = 1;
    bool operator==(const Unit &) const = default;
};

// storage[buffer] counts for main buffers; statistics follow theirs. The input of a layer inside a unit of several is
// `replay`.
using LayerPolicy = std::vector<Storage>;

struct Policies {
    std::vector<LayerPolicy> items;
    std::vector<Unit> units;  // cover all items in order; what may not stand with others is one of its own
    bool operator==(const Policies &) const = default;
    const Unit &unit_of(int64_t item) const;
};

// Nothing is kept but the input, and what no policy may replay.
LayerPolicy replay_all(const Program &program, Storage input);
// What the recompute settings say.
Policies policies_of(const Config &config, const Chain &chain);

// Edits, checked: an Error says what cannot be.
void set_storage(Policies &policies, const Chain &chain, int64_t tensor_parallel_size, int64_t item, BufferId buffer,
                 Storage storage);
void set_unit(Policies &policies, const Chain &chain, int64_t first, int64_t count);
// All rules on policies at once (after reading a plan from outside).
void check(const Policies &policies, const Chain &chain, int64_t tensor_parallel_size);
// Tensors whose storage can be set: all main buffers but the output and what the caller gives beside the input.
std::vector<BufferId> tensors_of(const Program &program);

}  // namespace mdlm

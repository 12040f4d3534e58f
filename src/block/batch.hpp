// SPDX-License-Identifier: Apache-2.0
// One micro-batch, checked against what was reserved, in the form that ops take.
#pragma once
#include <vector>

#include "base/config.hpp"
#include "op/op.hpp"

namespace mdlm {

// Bounds of the packed document of every token; room made at reserve.
class Documents {
public:
    void reserve(int64_t seq) { begin_.resize(seq), end_.resize(seq); }
    // offsets: count + 1 numbers rising from 0 to seq.
    void set(const int32_t *offsets, int64_t count);
    const int32_t *begin() const { return begin_.data(); }
    const int32_t *end() const { return end_.data(); }

private:
    std::vector<int32_t> begin_, end_;
};

// Offsets that a tape holds for its next forwards.
struct DocumentOffsets {
    std::vector<int32_t> offsets;  // room for max_documents + 1
    int64_t count = 0;
};

void check_documents(const int32_t *offsets, int64_t count, int64_t max_documents, int64_t seq, const char *name);
// Ranges and bounds; documents apart.
void check_batch(const Config &config, const mdlm_shape &reserved, const mdlm_batch &batch);
// Needs a checked batch. documents: storage for the bounds, when offsets are given.
RunState make_state(const Config &config, const mdlm_batch &batch, const int32_t *offsets, int64_t count,
                    Documents &documents);

}  // namespace mdlm

// SPDX-License-Identifier: Apache-2.0
// One micro-batch, checked against what was reserved, in the form that ops take.
#pragma once
#include <vector>

#include "base/config.hpp"
#include "block/memory.hpp"
#include "op/op.hpp"

namespace mdlm {

// What kernels read of one call, as they run: what it draws by, and the bounds of the packed document of every token.
// On the host; a device with a memory of its own gets a copy.
class CallState {
public:
    // Room for it (call_state_bytes): the host's own, or pinned memory. seq 0: without documents.
    void reserve(int64_t seq);
    void reserve(int64_t seq, Memory pinned);
    void set(const DrawState &draw);
    // offsets: count + 1 numbers rising from 0 to seq.
    void set(const int32_t *offsets, int64_t count);
    const char *image() const { return image_; }
    // The state's pointers go to this image of it, or to a copy.
    void point(RunState &state, const char *image) const;

private:
    std::vector<char> own_;
    Memory pinned_;
    char *image_ = nullptr;
    int64_t seq_ = 0;
};

// Offsets that a tape holds for its next forwards.
struct DocumentOffsets {
    std::vector<int32_t> offsets;  // room for max_documents + 1
    int64_t count = 0;
};

void check_documents(const int32_t *offsets, int64_t count, int64_t max_documents, int64_t seq, const char *name);
// Ranges and bounds; documents apart.
void check_batch(const Config &config, const mdlm_shape &reserved, const mdlm_batch &batch);
// Needs a checked batch; writes the call's image, and points to it.
RunState make_state(const Config &config, const mdlm_batch &batch, const int32_t *offsets, int64_t count,
                    CallState &call);

}  // namespace mdlm

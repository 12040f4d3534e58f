// SPDX-License-Identifier: Apache-2.0
#pragma once
#include "op/op.hpp"

namespace mdlm {

enum class Collective {
    all_reduce,
    all_gather,
    reduce_scatter,
    all_reduce_gradients  // of parameters
};

// A collective over the tensor-parallel group. `part` describes the buffer that holds the smaller side (the local
// part). Parts are of the sequence, so with batch_first the parts of each of several sequences are moved together or
// apart on this rank.
std::unique_ptr<Op> make_collective(Collective kind, const Buffer &part, BufferId in, BufferId out,
                                    bool batch_first = false);

}  // namespace mdlm

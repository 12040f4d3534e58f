// SPDX-License-Identifier: Apache-2.0
#pragma once
#include "op/op.hpp"

namespace mdlm {

// Where a parameter's part of the sum stands in the buffer of a layer's partial gradients, in elements.
struct PartialGradient {
    ParamId param = no_param;
    int64_t offset = 0, count = 0;
    bool first = true;  // of those of one parameter
};

// Sums the buffer over the group and adds it to the gradients. What is summed is this backward's contribution: summing
// the accumulators would multiply what earlier micro-batches left in them.
void emit_partial_gradients(Derivative &d, BufferId partial, std::vector<PartialGradient> parts);

}  // namespace mdlm

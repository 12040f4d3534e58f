// SPDX-License-Identifier: Apache-2.0
#pragma once
#include "op/op.hpp"

namespace mdlm {

struct NormSpec {
    DType dtype = DType::f32;
    int64_t width = 0, split = 1;
    bool rms = false, zero_centered = false;
    double epsilon = 0.0;
    ParamId weight = no_param, bias = no_param;
};

// x -> y, statistics (one buffer: rstd of every row, then for LayerNorm mean of every row).
// Backward reads x and the statistics, and adds what the gradient of x has from the residual path.
std::unique_ptr<Op> make_norm(const NormSpec &spec, BufferId x, BufferId y, BufferId stats);

}  // namespace mdlm

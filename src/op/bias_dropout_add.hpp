// SPDX-License-Identifier: Apache-2.0
#pragma once
#include "op/op.hpp"

namespace mdlm {

struct BiasDropoutAddSpec {
    DType dtype = DType::f32;
    int64_t width = 0, split = 1;
    double dropout = 0.0;
    Site site = Site::attention_output;
    ParamId bias = no_param;
};

// x, residual -> y = residual + dropout(x + bias), one rounding. Backward reads no forward tensor: the mask comes from
// the counters.
std::unique_ptr<Op> make_bias_dropout_add(const BiasDropoutAddSpec &spec, BufferId x, BufferId residual, BufferId y);

}  // namespace mdlm

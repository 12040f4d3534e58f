// SPDX-License-Identifier: Apache-2.0
#pragma once
#include "op/op.hpp"

namespace mdlm {

struct LinearSpec {
    DType dtype = DType::f32;
    int64_t n = 0, k = 0;  // on this rank: y[tokens, n] = x[tokens, k] w[n, k]^T + bias
    ParamId weight = no_param, bias = no_param;
    bool reduce_input_gradient = false;  // column parallel without sequence parallelism: every rank has a part of dx
};

// x -> y. Backward reads x, and only where the weight is trained.
std::unique_ptr<Op> make_linear(const LinearSpec &spec, BufferId x, BufferId y);
// Adds the column sums of a gradient to a parameter's gradient: for a bias that is added elsewhere.
void emit_bias_gradient(Derivative &d, DType dtype, int64_t width, int64_t split, ParamId bias, BufferId dy);

}  // namespace mdlm

// SPDX-License-Identifier: Apache-2.0
#pragma once
#include "op/op.hpp"

namespace mdlm {

struct QkNormRopeSpec {
    DType dtype = DType::f32;
    int64_t heads = 0, groups = 0, d = 0, rotary_dim = 0;
    bool interleaved = false, norm = false, rms = false, zero_centered = false;
    double epsilon = 0.0;
    ParamId q_weight = no_param, q_bias = no_param, k_weight = no_param, k_bias = no_param;
    HeadLayout q, k;          // in qkv
    HeadLayout q_out, k_out;  // in the rotated buffer
    int64_t stats_per_token() const { return norm ? (heads + groups) * (rms ? 1 : 2) : 0; }
};

// qkv -> rotated q and k [, statistics]. Backward reads qkv and the statistics, and only with a norm: a rotation needs
// neither. It writes the q and k parts of the gradient of qkv; the v part is the attention's.
std::unique_ptr<Op> make_qk_norm_rope(const QkNormRopeSpec &spec, BufferId qkv, BufferId rotated, BufferId stats);

}  // namespace mdlm

// SPDX-License-Identifier: Apache-2.0
// Sums of several ranks' parts in rank order, in float32 (float64 for f64), rounded once: the same bits on every rank.
#pragma once
#include <cstdint>

#include "base/dtype.hpp"

namespace mdlm {

// to[i] = op over ranks of from[rank][i]. `to` may be one of `from`.
void reduce_ranks(DType dtype, mdlm_reduce_op op, const void *const *from, int32_t ranks, int64_t count, void *to);

}  // namespace mdlm

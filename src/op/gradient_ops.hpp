// SPDX-License-Identifier: Apache-2.0
// What a derivative writes between the ops' own backwards, so that what they contribute to one gradient meets.
#pragma once
#include "op/op.hpp"

namespace mdlm {

// so_far, contribution -> sum, one rounding.
std::unique_ptr<Op> make_gradient_sum(const Buffer &buffer, BufferId so_far, BufferId contribution, BufferId sum);
// -> buffer. What it writes may be assigned again in parts.
std::unique_ptr<Op> make_gradient_zero(const Buffer &buffer, BufferId to);
std::unique_ptr<Op> make_gradient_copy(const Buffer &buffer, BufferId from, BufferId to);

}  // namespace mdlm

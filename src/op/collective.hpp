#pragma once
#include "op/op.hpp"

namespace mdlm {

enum class Collective { all_reduce, all_gather, reduce_scatter };

// A collective over the tensor-parallel group. `part` describes the buffer that holds the smaller side (the local part).
std::unique_ptr<Op> make_collective(Collective kind, const Buffer &part, BufferId in, BufferId out);

}  // namespace mdlm

// SPDX-License-Identifier: Apache-2.0
// The layer as data: buffers, parameters, and ops in the order in which they run. Everything else is derived from this.
#pragma once
#include <algorithm>
#include <memory>
#include <string>
#include <vector>

#include "base/config.hpp"
#include "op/op.hpp"

namespace mdlm {

// Rows of a parameter that have a name of their own, as they stand between those of others: runs of `run` rows, the
// first run from row `first`, one begins every `stride` rows.
struct ParamPart {
    std::string name;
    int64_t first = 0, run = 0, stride = 0, rows = 0;
    int64_t full_row(int64_t row) const { return first + row / run * stride + row % run; }
};

struct Param {
    std::string name;          // without the layer's prefix: "mlp.linear_fc1.weight"
    int64_t full[2] = {0, 1};  // rows, columns; ndim 1: columns 1
    int32_t ndim = 1;
    int32_t partition_dim = -1;  // over tensor-parallel ranks; -1 replicated
    int32_t partition_stride = 1;
    bool partial_grad = false;  // each rank has only a part of its gradient's sum: it saw its heads, or its tokens
    enum class Init { weight, output_weight, bias, norm_weight } init = Init::bias;
    std::vector<ParamPart> parts;  // of all rows, or none have a name
    int64_t local(int dim, int64_t t) const { return dim == partition_dim ? full[dim] / t : full[dim]; }
};

// Memory of one item that stays from step to step (a history of largest values): zeros at first, and then what ops
// leave there.
struct State {
    std::string name;
    DType dtype = DType::f32;
    int64_t elements = 0;
    int64_t bytes() const;  // as it is allocated
};

struct Program {
    std::vector<Buffer> buffers;
    std::vector<std::unique_ptr<Op>> ops;
    std::vector<Param> params;
    std::vector<State> states;
    BufferId input = no_buffer, output = no_buffer;
    // What the caller gives beside the input, each forward, and leaves as it is until its backward. Items that name one
    // alike read the same. No policy is about it, and it has no gradient.
    std::vector<BufferId> sides;
    // The op that assigns a buffer; -1 for what is given.
    int32_t producer(BufferId id) const;
    bool is_side(BufferId id) const { return std::find(sides.begin(), sides.end(), id) != sides.end(); }
    bool always_kept(BufferId id) const { return buffers[buffers[id].main].always_kept; }
    // Bytes of what no policy may replay. Whatever the policy, a tape has a place for it.
    int64_t kept_bytes(Extent extent) const;
    // INTERNAL where it breaks a rule of programs: how often an op runs would change what it computes.
    void check() const;
    // Index of the main buffer with a name; no_buffer.
    BufferId find(const std::string &name) const;
};

// One pre-norm transformer layer. Buffers' names are those of the plan; t > 1 has its collectives in it.
Program make_layer_program(const Config &config);
// The norm after the last layer, a program of its own.
Program make_final_norm_program(const Config &config);

}  // namespace mdlm

// SPDX-License-Identifier: Apache-2.0
// The program with its backward: what backward needs of forward follows from what is trained.
#pragma once
#include <memory>
#include <vector>

#include "layer/program.hpp"

namespace mdlm {

struct Differentiated {
    std::shared_ptr<const Program> program;
    std::vector<Buffer> buffers;  // the program's, then gradients
    std::vector<std::unique_ptr<Op>> backward;
    std::vector<int32_t> backward_of;      // by backward op: the op of the program whose gradient it is part of
    BufferId output_gradient = no_buffer;  // given: dy
    BufferId input_gradient = no_buffer;   // made: dx; no_buffer when not wanted
    std::vector<char> read;                // by buffer: some backward op reads it
    std::vector<char> trains;              // by parameter
    bool anything() const { return !backward.empty(); }
    const Op &op(int32_t index, bool is_backward) const {
        return is_backward ? *backward[index] : *program->ops[index];
    }
    // The tensor that the op makes, or for whose maker it makes gradients.
    const std::string &tensor(int32_t index, bool is_backward) const {
        return program->buffers[program->ops[is_backward ? backward_of[index] : index]->out[0]].name;
    }
};

// trains: by ParamId, which parameters want a gradient. input: does the input want one.
std::shared_ptr<const Differentiated> differentiate(std::shared_ptr<const Program> program, std::vector<char> trains,
                                                    bool input);

}  // namespace mdlm

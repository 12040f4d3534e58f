// SPDX-License-Identifier: Apache-2.0
// A golden case: a folder with a block's settings, inputs, parameters, and the outputs and gradients that someone else
// computed.
//
//   config.txt        one "key = value" a line: keys of mdlm_config, seq_length, micro_batch_size; '#' begins a comment
//   input.npy         [s, b, h]; output.npy, grad_output.npy and grad_input.npy the same
//   param/NAME.npy    every parameter, in full;  grad/NAME.npy  its gradient
//   cu_seqlens.npy    integers [n + 1], only where documents are packed
#pragma once
#include <cstdint>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "mdlm/mdlm.h"

namespace mdlm::tools {

struct Array {
    std::vector<int64_t> shape;
    std::vector<double> values;
};

struct Case {
    std::string folder;
    std::vector<std::pair<std::string, std::string>> settings;  // of config.txt, in its order, without the next two
    int64_t seq_length = 0, micro_batch_size = 0;
    std::vector<int32_t> cu_seqlens;  // empty: nothing is packed
    Array input, output, grad_output, grad_input;
    std::map<std::string, Array> params, grads;  // by name
};

// All of these throw Bad with one line that names the file, what was expected and what was seen.
Case read_case(const std::string &folder);
// The settings of config.txt over the defaults.
mdlm_config config_of(const Case &c);
// That every array has the shape that the config asks for, and the parameters are those of the block, no more and no
// fewer. Allocates nothing, so that sizes in a config that no file bears out are never believed.
void match_case(const Case &c, const mdlm_config &config, const mdlm_block *block);

}  // namespace mdlm::tools

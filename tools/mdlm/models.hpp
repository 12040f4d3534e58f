// SPDX-License-Identifier: Apache-2.0
// Shapes of published models, by name.
#pragma once
#include <cstdint>
#include <string>
#include <vector>

namespace mdlm::tools {

struct Model {
    const char *name, *about;
    std::vector<const char *> flags;  // Megatron's
    int64_t seq_length;
};

const std::vector<Model> &models();
// Bad, naming those there are.
const Model &model_of(const std::string &name);

}  // namespace mdlm::tools

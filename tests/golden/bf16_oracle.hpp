// SPDX-License-Identifier: Apache-2.0
// What a plain implementation in low precision gets on a golden case: the measure of how far the library may be off in
// bf16.
//
// Written from the formulas of a layer, in float64, and shares nothing with the library. With Rounding::bf16 the
// parameters and every tensor of the forward and of the backward are rounded to bf16 once; statistics and parameter
// gradients are not. With Rounding::none it must give the numbers of the case itself, which is how it is checked.
#pragma once
#include <map>
#include <string>
#include <vector>

#include "../../tools/mdlm/case.hpp"

namespace golden {

using Values = std::vector<double>;

enum class Rounding { none, bf16 };
// fused: scores and probabilities are not tensors, so they are not rounded.
enum class Attention { fused, unfused };

struct OracleResult {
    Values output, grad_input;
    std::map<std::string, Values> grads;
};
// ranks: of a tensor-parallel group, whose parts of a sum are tensors, too.
OracleResult run_oracle(const mdlm::tools::Case &c, Rounding rounding, Attention attention, int64_t ranks = 1);

// To the nearest bf16, ties to even.
double to_bf16(double value);

}  // namespace golden

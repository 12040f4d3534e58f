// SPDX-License-Identifier: Apache-2.0
// Checks a backward kernel by finite differences of its forward, in f64.
#pragma once
#include <functional>
#include <string>
#include <vector>

#include "support/tensor.hpp"

namespace mdlm_test {

// sum(output * cotangent); where the cotangent is 0 the output may be anything.
double product(const Tensor &output, const Tensor &cotangent);

struct Wrt {
    const char *name;
    Tensor *value;   // an input or parameter that loss reads
    Tensor *grad;    // where backward leaves the gradient of the loss
    bool parameter;  // its gradient is added to when backward accumulates
};

// loss runs the forward and returns product(output, cotangent); backward(accumulate) runs the kernel under test after
// it. Every element of every gradient: written whatever was there, equal to the difference quotient to 1e-6, added when
// accumulating. A gradient that is nearly all zero proves nothing and fails.
void check_backward(const std::string &what, const std::vector<Wrt> &wrt, const std::function<double()> &loss,
                    const std::function<void(bool accumulate)> &backward);

}  // namespace mdlm_test

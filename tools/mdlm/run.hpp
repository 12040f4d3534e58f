// SPDX-License-Identifier: Apache-2.0
// Runs a golden case through the C ABI, on one rank or as one of a group.
#pragma once
#include <memory>
#include <string>
#include <vector>

#include "case.hpp"
#include "mdlm/mdlm.h"
#include "rank.hpp"

namespace mdlm::tools {

template <auto destroy>
struct Destroy {
    template <class T>
    void operator()(T *handle) const {
        destroy(handle);
    }
};
using Context = std::unique_ptr<mdlm_context, Destroy<mdlm_context_destroy>>;
using Block = std::unique_ptr<mdlm_block, Destroy<mdlm_block_destroy>>;
using Tape = std::unique_ptr<mdlm_tape, Destroy<mdlm_tape_destroy>>;

// threads 0 = all cores. comm NULL: a group of one.
Context open_context(mdlm_device_kind device, int32_t threads, mdlm_matmul matmul = MDLM_MATMUL_AUTO,
                     mdlm_comm *comm = nullptr);

struct Outcome {
    // [s, b, h] whatever the block's layout; exact copies of what the block made.
    std::vector<double> output, grad_input;
    std::map<std::string, std::vector<double>> grads;
    bool operator==(const Outcome &) const = default;
};
// One forward and one backward, by all ranks of the context's group; each gets the whole outcome. Throws Bad, with the
// library's line, for whatever the library refuses.
Outcome run_case(mdlm_context *context, const Rank &rank, const Case &c, const mdlm_config &config);

// max|a - b| / max|b|; elements that differ by at most atol count as equal. 0 where both are all zero; infinite where a
// NaN is.
double relative_error(const std::vector<double> &a, const std::vector<double> &b, double atol = 0);

struct Errors {
    double output = 0, grad_input = 0, grad = 0;
    std::string worst;  // the parameter whose gradient is off by grad
    double largest() const;
};
Errors errors_of(const Outcome &seen, const Case &expected, double atol = 0);

}  // namespace mdlm::tools

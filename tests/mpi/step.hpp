// SPDX-License-Identifier: Apache-2.0
// One step of a small block as a rank of a group, through the C ABI only.
#pragma once
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "mdlm/mdlm.h"

namespace mpi_test {

inline void expect_ok(mdlm_status status, const char *call) {
    if (status != MDLM_OK)
        throw std::runtime_error(std::string(call) + ": " + mdlm_status_name(status) + ": " + mdlm_last_error());
}
#define OK(call) mpi_test::expect_ok(call, #call)

using Settings = std::vector<std::pair<const char *, const char *>>;

// Two layers of width 64 with grouped queries, qk-norm, biases and dropout; s = 24, b = 2. comm stays the caller's.
class Step {
public:
    Step(mdlm_comm *comm, const Settings &settings, int32_t (*cancelled)(void *payload) = nullptr,
         void *payload = nullptr);
    ~Step();
    Step(const Step &) = delete;

    mdlm_status forward();
    mdlm_status backward(mdlm_status (*grad_ready)(void *payload, int64_t layer) = nullptr, void *payload = nullptr);
    // y, dx, and the gradients of all parameters as this rank has them.
    std::vector<unsigned char> results();

    mdlm_batch batch = MDLM_BATCH_INIT;

private:
    void close();
    mdlm_context *context_ = nullptr;
    mdlm_block *block_ = nullptr;
    mdlm_tape *tape_ = nullptr;
    size_t bytes_ = 0;
    std::vector<double> memory_;  // x, y, dy, dx: aligned to 16 bytes by new
    unsigned char *at(int buffer);
};

}  // namespace mpi_test

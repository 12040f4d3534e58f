// SPDX-License-Identifier: Apache-2.0
#pragma once
#include "op/op.hpp"

namespace mdlm {

struct ActivationSpec {
    DType dtype = DType::f32;
    mdlm_activation kind = MDLM_ACT_GELU;
    int64_t width = 0;  // of the output, on this rank
    bool gated() const { return kind == MDLM_ACT_SWIGLU || kind == MDLM_ACT_GEGLU; }
};

// g -> m. Backward reads g.
std::unique_ptr<Op> make_activation(const ActivationSpec &spec, BufferId g, BufferId m);

}  // namespace mdlm

// SPDX-License-Identifier: Apache-2.0
#include "op/op.hpp"

#include <cmath>

#include "base/sizes.hpp"

namespace mdlm {

int64_t Buffer::bytes(Extent e) const {
    const int64_t local = ceil_div(e.tokens, split);
    const int64_t elements = add(fixed, add(mul(per_token, local), mul(per_pair, mul(local, e.seq))));
    return mul(elements, size_of(dtype));
}

Dropout RunState::dropout(double probability, Site site) const {
    Dropout d;
    if (!training || probability == 0.0) return d;
    d.on = true;
    d.threshold = static_cast<uint32_t>(std::min(probability * 4294967296.0, 4294967295.0));
    d.scale = static_cast<float>(1.0 / (1.0 - probability));
    d.seed = seed;
    d.step = step;
    d.where = Dropout::place(layer, site, micro_batch);
    return d;
}

}  // namespace mdlm

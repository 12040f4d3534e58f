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

int32_t contribute_part(Derivative &d, Op &op, BufferId forward, const HeadColumns &columns) {
    if (!d.wants(forward)) return -1;
    op.out.push_back(d.contribute_columns(forward, columns));
    return static_cast<int32_t>(op.out.size() - 1);
}

bool accumulate(const Call &c, std::initializer_list<const GradSink *> sinks) {
    bool any = false, all = true;
    for (const GradSink *s : sinks)
        if (s->param != no_param) any = any || s->accumulate(c), all = all && s->accumulate(c);
    if (any && !all)
        fail(MDLM_ERROR_INTERNAL,
             "a kernel adds to one parameter's gradient and assigns another's: expected one of them");
    return any;
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

// SPDX-License-Identifier: Apache-2.0
#include "op/op.hpp"

#include <algorithm>
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

void both_ways(const UseKernel &use, Kernel kernel, KernelSize size) {
    for (const bool accumulate : {false, true}) size.accumulate = accumulate, use(kernel, size);
}

void with_dropout(const UseKernel &use, Kernel kernel, KernelSize size, double probability) {
    use(kernel, size);
    if (probability != 0.0) size.dropout = true, use(kernel, size);
}

int64_t Op::workspace(const Traits &traits, Extent extent) const {
    int64_t most = scratch(extent);
    kernels(extent,
            [&](Kernel kernel, const KernelSize &size) { most = std::max(most, traits.workspace(kernel, size)); });
    return most;
}

void Op::prepare(Device &device, Extent extent) const {
    kernels(extent, [&](Kernel kernel, const KernelSize &size) { device.prepare(kernel, size); });
}

Dropout RunState::dropout(double probability, Site site) const {
    Dropout d;
    if (!training || probability == 0.0) return d;
    d.on = true;
    d.threshold = static_cast<uint32_t>(std::min(probability * 4294967296.0, 4294967295.0));
    d.scale = static_cast<float>(1.0 / (1.0 - probability));
    d.where = Dropout::place(layer, site);
    d.draw = draw;
    return d;
}

}  // namespace mdlm

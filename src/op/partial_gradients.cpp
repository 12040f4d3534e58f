// SPDX-License-Identifier: Apache-2.0
#include "op/partial_gradients.hpp"

#include "base/sizes.hpp"
#include "op/collective.hpp"

namespace mdlm {
namespace {

class PartialGradientAddOp final : public Op {
public:
    PartialGradientAddOp(const Buffer &buffer, std::vector<PartialGradient> parts)
        : buffer_(buffer), parts_(std::move(parts)) {}
    const char *name() const override { return "add_gradients"; }
    void run(const Call &c) const override {
        for (const PartialGradient &p : parts_)
            c.device.run(BiasGrad{buffer_.dtype, 1, p.count,
                                  static_cast<const char *>(c.in[0]) + p.offset * size_of(buffer_.dtype),
                                  c.grad(p.param), c.state.accumulate || !p.first, c.workspace});
    }
    Cost cost(Extent) const override { return {buffer_.fixed, 3 * Checked(buffer_.fixed) * size_of(buffer_.dtype)}; }
    void kernels(Extent, const UseKernel &use) const override {
        for (const PartialGradient &p : parts_) {
            KernelSize s;
            s.dtype = buffer_.dtype, s.rows = 1, s.n = p.count;
            both_ways(use, Kernel::bias_grad, s);
        }
    }

private:
    Buffer buffer_;
    std::vector<PartialGradient> parts_;
};

}  // namespace

void emit_partial_gradients(Derivative &d, BufferId partial, std::vector<PartialGradient> parts) {
    const BufferId sum = d.new_like(partial, "sum");
    d.emit(make_collective(Collective::all_reduce_gradients, d.buffer(partial), partial, sum));
    auto op = std::make_unique<PartialGradientAddOp>(d.buffer(sum), std::move(parts));
    op->in = {sum};
    d.emit(std::move(op));
}

}  // namespace mdlm

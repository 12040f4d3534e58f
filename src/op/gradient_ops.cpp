// SPDX-License-Identifier: Apache-2.0
#include "op/gradient_ops.hpp"

#include "base/sizes.hpp"

namespace mdlm {
namespace {

class GradientOpBase : public Op {
public:
    explicit GradientOpBase(const Buffer &buffer) : buffer_(buffer) {}

protected:
    int64_t bytes(Extent e) const { return buffer_.bytes(e); }
    int64_t elements(Extent e) const { return bytes(e) / size_of(buffer_.dtype); }
    Buffer buffer_;
};

class GradientSumOp final : public GradientOpBase {
public:
    using GradientOpBase::GradientOpBase;
    const char *name() const override { return "gradient_sum"; }
    void run(const Call &c) const override {
        BiasDropoutAdd a{};
        a.dtype = buffer_.dtype;
        a.tokens = c.state.part(buffer_.split);
        a.width = elements(c.state.extent()) / a.tokens.rows();
        a.x = c.in[1], a.residual = c.in[0], a.y = c.out[0];
        c.device.run(a);
    }
    void kernels(Extent e, const UseKernel &use) const override {
        KernelSize s;
        s.dtype = buffer_.dtype, s.rows = ceil_div(e.tokens, buffer_.split), s.n = elements(e) / s.rows;
        use(Kernel::bias_dropout_add, s);
    }
    Cost cost(Extent e) const override { return {elements(e), 3 * Checked(bytes(e))}; }
    std::vector<int32_t> in_place() const override { return {0, 1}; }
};

class GradientZeroOp final : public GradientOpBase {
public:
    using GradientOpBase::GradientOpBase;
    const char *name() const override { return "gradient_zero"; }
    void run(const Call &c) const override { c.device.zero(c.out[0], static_cast<size_t>(bytes(c.state.extent()))); }
    Cost cost(Extent e) const override { return {0, bytes(e)}; }
};

class GradientCopyOp final : public GradientOpBase {
public:
    using GradientOpBase::GradientOpBase;
    const char *name() const override { return "gradient_copy"; }
    void run(const Call &c) const override {
        c.device.copy(c.out[0], c.in[0], static_cast<size_t>(bytes(c.state.extent())));
    }
    Cost cost(Extent e) const override { return {0, 2 * Checked(bytes(e))}; }
};

}  // namespace

std::unique_ptr<Op> make_gradient_sum(const Buffer &buffer, BufferId so_far, BufferId contribution, BufferId sum) {
    auto op = std::make_unique<GradientSumOp>(buffer);
    op->in = {so_far, contribution};
    op->out = {sum};
    return op;
}

std::unique_ptr<Op> make_gradient_zero(const Buffer &buffer, BufferId to) {
    auto op = std::make_unique<GradientZeroOp>(buffer);
    op->out = {to};
    return op;
}

std::unique_ptr<Op> make_gradient_copy(const Buffer &buffer, BufferId from, BufferId to) {
    auto op = std::make_unique<GradientCopyOp>(buffer);
    op->in = {from};
    op->out = {to};
    return op;
}

}  // namespace mdlm

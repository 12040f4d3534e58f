// SPDX-License-Identifier: Apache-2.0
// The reference device: plain loops with double accumulation on the calling thread. The measure of the other devices.
#include <cstdio>
#include <cstring>

#include "base/sizes.hpp"
#include "device/device.hpp"
#include "device/reference/families.hpp"

namespace mdlm {
namespace {

class ReferenceDevice final : public Device {
public:
    Traits traits() const override { return traits_of(MDLM_DEVICE_REFERENCE, 1); }
    void describe(char *line, size_t cap) const override {
        std::snprintf(line, cap, "reference: plain loops, double accumulation, one thread");
    }

    void copy(void *to, const void *from, size_t bytes) override {
        if (bytes != 0) std::memcpy(to, from, bytes);
    }
    void zero(void *memory, size_t bytes) override {
        if (bytes != 0) std::memset(memory, 0, bytes);
    }

    void norm_forward(const NormForward &a) override { reference::norm_forward(a); }
    void norm_backward(const NormBackward &a) override { reference::norm_backward(a); }
    void linear_forward(const LinearForward &a) override { reference::linear_forward(a); }
    void linear_dgrad(const LinearDgrad &a) override { reference::linear_dgrad(a); }
    void linear_wgrad(const LinearWgrad &a) override { reference::linear_wgrad(a); }
    void bias_grad(const BiasGrad &a) override { reference::bias_grad(a); }
    void qk_norm_rope(const QkNormRope &a) override { reference::qk_norm_rope(a); }
    void qk_norm_rope_backward(const QkNormRopeBackward &a) override { reference::qk_norm_rope_backward(a); }
    void attention_forward(const AttentionForward &a) override { reference::attention_forward(a); }
    void attention_backward(const AttentionBackward &a) override { reference::attention_backward(a); }
    void attn_scores(const AttnScores &a) override { reference::attn_scores(a); }
    void attn_softmax(const AttnSoftmax &a) override { reference::attn_softmax(a); }
    void attn_context(const AttnContext &a) override { reference::attn_context(a); }
    void attn_context_backward(const AttnContextBackward &a) override { reference::attn_context_backward(a); }
    void attn_softmax_backward(const AttnSoftmaxBackward &a) override { reference::attn_softmax_backward(a); }
    void attn_scores_backward(const AttnScoresBackward &a) override { reference::attn_scores_backward(a); }
    void bias_dropout_add(const BiasDropoutAdd &a) override { reference::bias_dropout_add(a); }
    void dropout_backward(const DropoutBackward &a) override { reference::dropout_backward(a); }
    void activation_forward(const ActivationForward &a) override { reference::activation_forward(a); }
    void activation_backward(const ActivationBackward &a) override { reference::activation_backward(a); }
};

}  // namespace

std::unique_ptr<Device> make_reference_device() { return std::make_unique<ReferenceDevice>(); }

bool reference_supports(DType dtype) { return dtype != DType::f16; }

int64_t reference_workspace(Kernel kernel, const KernelSize &size) {
    const auto doubles = [](int64_t count) { return mul(count, int64_t{sizeof(double)}); };
    switch (kernel) {
    case Kernel::attention_forward: return doubles(size.seq);
    case Kernel::attention_backward: return doubles(mul(size.seq, add(1, mul(2, size.d))));
    case Kernel::attn_context_backward:
    case Kernel::attn_scores_backward: return doubles(mul(size.seq, size.d));
    case Kernel::linear_forward:
    case Kernel::linear_dgrad:
    case Kernel::linear_wgrad:
    case Kernel::bias_grad:
    case Kernel::norm_backward:
    case Kernel::qk_norm_rope_backward: return 0;
    }
    fail(MDLM_ERROR_INTERNAL, "kernel: no such kernel %d", int(kernel));
}

}  // namespace mdlm

// SPDX-License-Identifier: Apache-2.0
// A device around another one: every call goes on to it. Tests override what they want to see or to spoil.
#pragma once
#include <memory>
#include <utility>

#include "device/device.hpp"

namespace mdlm_test {

class WrappedDevice : public mdlm::Device {
public:
    explicit WrappedDevice(std::unique_ptr<mdlm::Device> inner) : inner_(std::move(inner)) {}

    mdlm::Traits traits() const override { return inner_->traits(); }
    int64_t alignment(mdlm::DType dtype) const override { return inner_->alignment(dtype); }
    void describe(char *line, size_t cap) const override { inner_->describe(line, cap); }
    std::shared_ptr<void> begin_shape() override { return inner_->begin_shape(); }
    void prepare(mdlm::Kernel kernel, const mdlm::KernelSize &size) override { inner_->prepare(kernel, size); }
    void copy(void *to, const void *from, size_t bytes) override { inner_->copy(to, from, bytes); }
    void zero(void *memory, size_t bytes) override { inner_->zero(memory, bytes); }
    void synchronize() override { inner_->synchronize(); }

    void norm_forward(const mdlm::NormForward &a) override { inner_->norm_forward(a); }
    void norm_backward(const mdlm::NormBackward &a) override { inner_->norm_backward(a); }
    void linear_forward(const mdlm::LinearForward &a) override { inner_->linear_forward(a); }
    void linear_dgrad(const mdlm::LinearDgrad &a) override { inner_->linear_dgrad(a); }
    void linear_wgrad(const mdlm::LinearWgrad &a) override { inner_->linear_wgrad(a); }
    void bias_grad(const mdlm::BiasGrad &a) override { inner_->bias_grad(a); }
    void qk_norm_rope(const mdlm::QkNormRope &a) override { inner_->qk_norm_rope(a); }
    void qk_norm_rope_backward(const mdlm::QkNormRopeBackward &a) override { inner_->qk_norm_rope_backward(a); }
    void attention_forward(const mdlm::AttentionForward &a) override { inner_->attention_forward(a); }
    void attention_backward(const mdlm::AttentionBackward &a) override { inner_->attention_backward(a); }
    void attn_scores(const mdlm::AttnScores &a) override { inner_->attn_scores(a); }
    void attn_softmax(const mdlm::AttnSoftmax &a) override { inner_->attn_softmax(a); }
    void attn_context(const mdlm::AttnContext &a) override { inner_->attn_context(a); }
    void attn_context_backward(const mdlm::AttnContextBackward &a) override { inner_->attn_context_backward(a); }
    void attn_softmax_backward(const mdlm::AttnSoftmaxBackward &a) override { inner_->attn_softmax_backward(a); }
    void attn_scores_backward(const mdlm::AttnScoresBackward &a) override { inner_->attn_scores_backward(a); }
    void bias_dropout_add(const mdlm::BiasDropoutAdd &a) override { inner_->bias_dropout_add(a); }
    void dropout_backward(const mdlm::DropoutBackward &a) override { inner_->dropout_backward(a); }
    void activation_forward(const mdlm::ActivationForward &a) override { inner_->activation_forward(a); }
    void activation_backward(const mdlm::ActivationBackward &a) override { inner_->activation_backward(a); }

protected:
    mdlm::Device &inner() { return *inner_; }

private:
    std::unique_ptr<mdlm::Device> inner_;
};

}  // namespace mdlm_test

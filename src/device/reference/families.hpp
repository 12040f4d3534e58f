// SPDX-License-Identifier: Apache-2.0
// The reference kernels, one file a family. Arguments and rules: device/kernels.hpp.
#pragma once
#include "device/kernels.hpp"

namespace mdlm::reference {

// norm.cpp
void norm_forward(const NormForward &);
void norm_backward(const NormBackward &);
// linear.cpp
void linear_forward(const LinearForward &);
void linear_dgrad(const LinearDgrad &);
void linear_wgrad(const LinearWgrad &);
void bias_grad(const BiasGrad &);
// rope.cpp
void qk_norm_rope(const QkNormRope &);
void qk_norm_rope_backward(const QkNormRopeBackward &);
// attention_fused.cpp
void attention_forward(const AttentionForward &);
void attention_backward(const AttentionBackward &);
// attention_unfused.cpp
void attn_scores(const AttnScores &);
void attn_softmax(const AttnSoftmax &);
void attn_context(const AttnContext &);
void attn_context_backward(const AttnContextBackward &);
void attn_softmax_backward(const AttnSoftmaxBackward &);
void attn_scores_backward(const AttnScoresBackward &);
// pointwise.cpp
void bias_dropout_add(const BiasDropoutAdd &);
void dropout_backward(const DropoutBackward &);
void activation_forward(const ActivationForward &);
void activation_backward(const ActivationBackward &);

}  // namespace mdlm::reference

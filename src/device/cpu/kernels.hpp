// SPDX-License-Identifier: Apache-2.0
// The kernels of the CPU device, one function each, and the scratch bytes that they need. Contracts:
// device/kernels.hpp.
#pragma once
#include "base/pool.hpp"
#include "device/device.hpp"

namespace mdlm::cpu {

void norm_forward(Pool &, const NormForward &);
void norm_backward(Pool &, const NormBackward &);
void bias_grad(Pool &, const BiasGrad &);
void qk_norm_rope(Pool &, const QkNormRope &);
void qk_norm_rope_backward(Pool &, const QkNormRopeBackward &);
void attention_forward(Pool &, const AttentionForward &);
void attention_backward(Pool &, const AttentionBackward &);
void attn_scores(Pool &, const AttnScores &);
void attn_softmax(Pool &, const AttnSoftmax &);
void attn_context(Pool &, const AttnContext &);
void attn_context_backward(Pool &, const AttnContextBackward &);
void attn_softmax_backward(Pool &, const AttnSoftmaxBackward &);
void attn_scores_backward(Pool &, const AttnScoresBackward &);
void bias_dropout_add(Pool &, const BiasDropoutAdd &);
void dropout_backward(Pool &, const DropoutBackward &);
void activation_forward(Pool &, const ActivationForward &);
void activation_backward(Pool &, const ActivationBackward &);

int64_t norm_backward_workspace(const KernelSize &, int32_t threads);
int64_t bias_grad_workspace(const KernelSize &, int32_t threads);
int64_t qk_norm_rope_backward_workspace(const KernelSize &, int32_t threads);
int64_t attention_forward_workspace(const KernelSize &, int32_t threads);
int64_t attention_backward_workspace(const KernelSize &, int32_t threads);
int64_t linear_workspace(DType, int32_t threads);  // of linear.hpp

}  // namespace mdlm::cpu

// SPDX-License-Identifier: Apache-2.0
// A device: the kernels that an op may call, and its memory. All kernels are stream ordered; on the CPU they are done
// on return.
#pragma once
#include <cstddef>
#include <memory>

#include "base/pool.hpp"
#include "device/kernels.hpp"

namespace mdlm {

// Which kernels need scratch or preparation.
enum class Kernel {
    linear_forward,
    linear_dgrad,
    linear_wgrad,
    bias_grad,
    norm_backward,
    qk_norm_rope_backward,
    attention_forward,
    attention_backward,
    attn_context_backward,
    attn_scores_backward
};

// Sizes by which scratch is bounded. What a kernel does not use is 0.
struct KernelSize {
    DType dtype = DType::f32;
    int64_t rows = 0;      // m, tokens
    int64_t n = 0, k = 0;  // width is n
    int64_t seq = 0, heads = 0, groups = 0, d = 0;
    bool bias = false, accumulate = true;
};

// What must be known of a device to plan for it without having it.
struct Traits {
    mdlm_device_kind kind = MDLM_DEVICE_CPU;
    int32_t threads = 1;
    // Not 0: a device that is only planned for, whose kernels that need scratch take this much.
    int64_t scratch_cap = 0;
    // Scratch bytes of a kernel; grows with every size in KernelSize and with threads, so that a bound covers all
    // smaller shapes.
    int64_t workspace(Kernel kernel, const KernelSize &size) const;
    bool supports(DType dtype) const;
};
// Traits of a device kind for this build; threads 0 = all usable cores. UNSUPPORTED for a kind that is not built in.
Traits traits_of(mdlm_device_kind kind, int32_t threads);

class Device {
public:
    virtual ~Device() = default;
    virtual Traits traits() const = 0;
    // Of the block's inputs and outputs, which are the caller's. A power of two, at least the size of an element.
    virtual int64_t alignment(DType dtype) const { return size_of(dtype); }
    virtual void describe(char *line, size_t cap) const = 0;

    // Makes what a kernel needs at exactly these sizes (primitives), so that running it allocates nothing, and keeps it
    // as long as the shape that was begun last is held. The handle goes before the device does. Null: there is nothing
    // to hold.
    virtual std::shared_ptr<void> begin_shape() { return nullptr; }
    virtual void prepare(Kernel, const KernelSize &) {}

    virtual void copy(void *to, const void *from, size_t bytes) = 0;  // within the device or to and from the host
    virtual void zero(void *memory, size_t bytes) = 0;
    virtual void synchronize() {}

    virtual void norm_forward(const NormForward &) = 0;
    virtual void norm_backward(const NormBackward &) = 0;
    virtual void linear_forward(const LinearForward &) = 0;
    virtual void linear_dgrad(const LinearDgrad &) = 0;
    virtual void linear_wgrad(const LinearWgrad &) = 0;
    virtual void bias_grad(const BiasGrad &) = 0;
    virtual void qk_norm_rope(const QkNormRope &) = 0;
    virtual void qk_norm_rope_backward(const QkNormRopeBackward &) = 0;
    virtual void attention_forward(const AttentionForward &) = 0;
    virtual void attention_backward(const AttentionBackward &) = 0;
    virtual void attn_scores(const AttnScores &) = 0;
    virtual void attn_softmax(const AttnSoftmax &) = 0;
    virtual void attn_context(const AttnContext &) = 0;
    virtual void attn_context_backward(const AttnContextBackward &) = 0;
    virtual void attn_softmax_backward(const AttnSoftmaxBackward &) = 0;
    virtual void attn_scores_backward(const AttnScoresBackward &) = 0;
    virtual void bias_dropout_add(const BiasDropoutAdd &) = 0;
    virtual void dropout_backward(const DropoutBackward &) = 0;
    virtual void activation_forward(const ActivationForward &) = 0;
    virtual void activation_backward(const ActivationBackward &) = 0;
};

// Each in its own folder.
std::unique_ptr<Device> make_reference_device();
std::unique_ptr<Device> make_cpu_device(std::unique_ptr<Pool> pool, mdlm_matmul matmul = MDLM_MATMUL_AUTO);
int64_t reference_workspace(Kernel kernel, const KernelSize &size);
int64_t cpu_workspace(Kernel kernel, const KernelSize &size, int32_t threads);
bool reference_supports(DType dtype);
bool cpu_supports(DType dtype);
bool cpu_has_onednn();  // built with it

}  // namespace mdlm

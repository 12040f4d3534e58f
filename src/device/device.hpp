// SPDX-License-Identifier: Apache-2.0
// A device: the kernels that an op may call, its memory, and its streams. What is enqueued in a stream is done in
// order; on a device whose memory is the host's it is done on return.
#pragma once
#include <cstddef>
#include <memory>

#include "base/pool.hpp"
#include "device/events.hpp"
#include "device/host_memory.hpp"
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
    // Its memory is its own and work is enqueued: what kernels read of a call (CallState) is in that memory.
    bool asynchronous = false;
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

    // Memory of the device, and of the host in such a form that transfers need not wait. nullptr when there is none.
    // Freeing comes when nothing that is enqueued uses it.
    virtual void *allocate(size_t bytes, size_t alignment) { return allocate_host(bytes, alignment); }
    virtual void free(void *memory, size_t bytes, size_t alignment) noexcept { free_host(memory, bytes, alignment); }
    virtual void *allocate_pinned(size_t bytes, size_t alignment) { return allocate_host(bytes, alignment); }
    virtual void free_pinned(void *memory, size_t bytes, size_t alignment) noexcept {
        free_host(memory, bytes, alignment);
    }

    // Enqueued in the compute stream, within the device.
    virtual void copy(void *to, const void *from, size_t bytes) = 0;
    virtual void zero(void *memory, size_t bytes) = 0;
    // Enqueued, between the device and pinned memory, which stays as it is until then.
    virtual void transfer(Stream, void *to, const void *from, size_t bytes) { copy(to, from, bytes); }
    // Between any memory of the host and the device, behind what is in the compute stream; done on return.
    virtual void upload(void *to, const void *host, size_t bytes) { copy(to, host, bytes); }
    virtual void download(void *host, const void *from, size_t bytes) { copy(host, from, bytes); }
    // The same from and to whatever memory it is.
    virtual void copy_any(void *to, const void *from, size_t bytes) { copy(to, from, bytes); }

    virtual std::unique_ptr<Events> make_events(int32_t count);
    // Returns when both streams are empty. Throws what failed in them, here and from then on.
    virtual void synchronize() {}
    // Throws what is known to have failed, without waiting.
    virtual void check() {}
    // Threads of the host that the device would leave idle; null: none.
    virtual Pool *pool() { return nullptr; }

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

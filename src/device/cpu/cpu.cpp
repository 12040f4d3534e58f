// SPDX-License-Identifier: Apache-2.0
// The CPU device: a pool, the linears, and the kernels of this folder.
#include <cstdio>
#include <cstring>

#if defined(__x86_64__) || defined(__i386__)
#include <cpuid.h>
#endif

#include "base/status.hpp"
#include "device/cpu/kernels.hpp"
#include "device/cpu/linear.hpp"
#include "device/cpu/product.hpp"

namespace mdlm {
namespace {

const char *instruction_set() {
#if defined(__x86_64__) || defined(__i386__)
    if (!__builtin_cpu_supports("avx2")) return "sse2";
    if (!__builtin_cpu_supports("avx512f") || !__builtin_cpu_supports("avx512bw")) return "avx2";
    unsigned a = 0, b = 0, c = 0, d = 0;
    if (__get_cpuid_count(7, 0, &a, &b, &c, &d) != 0 && (d & (1u << 22)) != 0 && (d & (1u << 24)) != 0) return "amx";
    if (__get_cpuid_count(7, 1, &a, &b, &c, &d) != 0 && (a & (1u << 5)) != 0) return "avx512_bf16";
    return "avx512";
#elif defined(__aarch64__)
    return "neon";
#else
    return "baseline";
#endif
}

// With AVX-512 oneDNN has kernels on packed blocks, and for bf16 with AMX. Without, its bf16 is refused or slow, and
// its f32 is as fast as ours only on large tiles.
std::unique_ptr<cpu::Library> library_for(mdlm_matmul matmul, int32_t workers) {
    const bool wanted =
        matmul == MDLM_MATMUL_ONEDNN || (matmul == MDLM_MATMUL_AUTO && std::strncmp(instruction_set(), "a", 1) == 0 &&
                                         std::strcmp(instruction_set(), "avx2") != 0);
    std::unique_ptr<cpu::Library> library = wanted ? cpu::make_library(workers) : nullptr;
    if (matmul == MDLM_MATMUL_ONEDNN && !library)
        fail(MDLM_ERROR_UNSUPPORTED, "matmul = ONEDNN: this build has no oneDNN");
    return library;
}

class CpuDevice final : public Device {
public:
    CpuDevice(std::unique_ptr<Pool> pool, mdlm_matmul matmul)
        : pool_(std::move(pool)), linears_(pool_->size(), library_for(matmul, pool_->size())) {}

    Traits traits() const override { return {MDLM_DEVICE_CPU, pool_->size()}; }
    void describe(char *line, size_t cap) const override {
        const cpu::Library *library = linears_.library();
        const auto matmuls = [&](DType type) {
            return library != nullptr && library->runs(type) ? library->name() : "own";
        };
        std::snprintf(line, cap, "cpu: %d thread%s, %s (kernels for %s); matmuls in f32: %s, bf16: %s",
                      static_cast<int>(pool_->size()), pool_->size() == 1 ? "" : "s", instruction_set(),
                      cpu::kernel_target(), matmuls(DType::f32), matmuls(DType::bf16));
    }

    std::shared_ptr<void> begin_shape() override { return linears_.begin_shape(); }
    void prepare(Kernel kernel, const KernelSize &size) override { linears_.prepare(kernel, size); }

    void copy(void *to, const void *from, size_t bytes) override {
        if (bytes > 0) std::memmove(to, from, bytes);
    }
    Pool *pool() override { return pool_.get(); }
    void zero(void *memory, size_t bytes) override {
        if (bytes > 0) std::memset(memory, 0, bytes);
    }

    void norm_forward(const NormForward &a) override { cpu::norm_forward(*pool_, a); }
    void norm_backward(const NormBackward &a) override { cpu::norm_backward(*pool_, a); }
    void linear_forward(const LinearForward &a) override { linears_.forward(*pool_, a); }
    void linear_dgrad(const LinearDgrad &a) override { linears_.dgrad(*pool_, a); }
    void linear_wgrad(const LinearWgrad &a) override { linears_.wgrad(*pool_, a); }
    void bias_grad(const BiasGrad &a) override { cpu::bias_grad(*pool_, a); }
    void qk_norm_rope(const QkNormRope &a) override { cpu::qk_norm_rope(*pool_, a); }
    void qk_norm_rope_backward(const QkNormRopeBackward &a) override { cpu::qk_norm_rope_backward(*pool_, a); }
    void attention_forward(const AttentionForward &a) override { cpu::attention_forward(*pool_, a); }
    void attention_backward(const AttentionBackward &a) override { cpu::attention_backward(*pool_, a); }
    void attn_scores(const AttnScores &a) override { cpu::attn_scores(*pool_, a); }
    void attn_softmax(const AttnSoftmax &a) override { cpu::attn_softmax(*pool_, a); }
    void attn_context(const AttnContext &a) override { cpu::attn_context(*pool_, a); }
    void attn_context_backward(const AttnContextBackward &a) override { cpu::attn_context_backward(*pool_, a); }
    void attn_softmax_backward(const AttnSoftmaxBackward &a) override { cpu::attn_softmax_backward(*pool_, a); }
    void attn_scores_backward(const AttnScoresBackward &a) override { cpu::attn_scores_backward(*pool_, a); }
    void bias_dropout_add(const BiasDropoutAdd &a) override { cpu::bias_dropout_add(*pool_, a); }
    void dropout_backward(const DropoutBackward &a) override { cpu::dropout_backward(*pool_, a); }
    void activation_forward(const ActivationForward &a) override { cpu::activation_forward(*pool_, a); }
    void activation_backward(const ActivationBackward &a) override { cpu::activation_backward(*pool_, a); }

private:
    std::unique_ptr<Pool> pool_;
    cpu::Linears linears_;
};

}  // namespace

std::unique_ptr<Device> make_cpu_device(std::unique_ptr<Pool> pool, mdlm_matmul matmul) {
    return std::make_unique<CpuDevice>(std::move(pool), matmul);
}

bool cpu_supports(DType dtype) { return dtype == DType::f32 || dtype == DType::bf16; }

int64_t cpu_workspace(Kernel kernel, const KernelSize &size, int32_t threads) {
    switch (kernel) {
    case Kernel::linear_forward:
    case Kernel::linear_dgrad:
    case Kernel::linear_wgrad: return cpu::linear_workspace(size.dtype, threads);
    case Kernel::bias_grad: return cpu::bias_grad_workspace(size, threads);
    case Kernel::norm_backward: return cpu::norm_backward_workspace(size, threads);
    case Kernel::qk_norm_rope_backward: return cpu::qk_norm_rope_backward_workspace(size, threads);
    case Kernel::attention_forward: return cpu::attention_forward_workspace(size, threads);
    case Kernel::attention_backward: return cpu::attention_backward_workspace(size, threads);
    case Kernel::attn_context_backward:
    case Kernel::attn_scores_backward: return 0;
    }
    return 0;
}

}  // namespace mdlm

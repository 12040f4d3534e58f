// SPDX-License-Identifier: Apache-2.0
// Every kernel, one line each: its name and its arguments (kernels.hpp). What is known of a kernel without a device
// follows from its line; devices make their own tables from the same lines.
#pragma once
#include <cstddef>
#include <type_traits>

#include "device/kernels.hpp"

// A line each, and no column that all lines share.
// clang-format off
#define MDLM_KERNELS(KERNEL) \
    KERNEL(norm_forward, NormForward) \
    KERNEL(norm_backward, NormBackward) \
    KERNEL(linear_forward, LinearForward) \
    KERNEL(linear_dgrad, LinearDgrad) \
    KERNEL(linear_wgrad, LinearWgrad) \
    KERNEL(bias_grad, BiasGrad) \
    KERNEL(qk_norm_rope, QkNormRope) \
    KERNEL(qk_norm_rope_backward, QkNormRopeBackward) \
    KERNEL(attention_forward, AttentionForward) \
    KERNEL(attention_backward, AttentionBackward) \
    KERNEL(attn_scores, AttnScores) \
    KERNEL(attn_softmax, AttnSoftmax) \
    KERNEL(attn_context, AttnContext) \
    KERNEL(attn_context_backward, AttnContextBackward) \
    KERNEL(attn_softmax_backward, AttnSoftmaxBackward) \
    KERNEL(attn_scores_backward, AttnScoresBackward) \
    KERNEL(bias_dropout_add, BiasDropoutAdd) \
    KERNEL(dropout_backward, DropoutBackward) \
    KERNEL(activation_forward, ActivationForward) \
    KERNEL(activation_backward, ActivationBackward)                                                                    \
    KERNEL(transpose_pieces, TransposePieces)
// clang-format on

namespace mdlm {

#define MDLM_KERNEL(name, Arguments) name,
enum class Kernel { MDLM_KERNELS(MDLM_KERNEL) };
#undef MDLM_KERNEL

// A kernel has scratch when its arguments have a place for it.
template <class Arguments>
concept HasWorkspace = requires(const Arguments &a) {
    a.workspace;
};

// The kernel whose arguments these are.
template <class Arguments>
struct KernelOf;
#define MDLM_KERNEL(name, Arguments)                                                                                   \
    static_assert(std::is_trivially_copyable_v<Arguments>);                                                            \
    template <>                                                                                                        \
    struct KernelOf<Arguments> : std::integral_constant<Kernel, Kernel::name> {};
MDLM_KERNELS(MDLM_KERNEL)
#undef MDLM_KERNEL
template <class Arguments>
inline constexpr Kernel kernel_of = KernelOf<Arguments>::value;

// What is known of each without a device.
struct KernelEntry {
    const char *name;
    size_t arguments_bytes;
    bool has_workspace;
};
#define MDLM_KERNEL(name, Arguments) {#name, sizeof(Arguments), HasWorkspace<Arguments>},
inline constexpr KernelEntry kernel_table[] = {MDLM_KERNELS(MDLM_KERNEL)};
#undef MDLM_KERNEL
inline constexpr int kernel_count = std::extent_v<decltype(kernel_table)>;

constexpr const char *name_of(Kernel kernel) { return kernel_table[static_cast<int>(kernel)].name; }
constexpr size_t arguments_bytes(Kernel kernel) { return kernel_table[static_cast<int>(kernel)].arguments_bytes; }
constexpr bool has_workspace(Kernel kernel) { return kernel_table[static_cast<int>(kernel)].has_workspace; }

// The arguments of a launch, if they are these; else null.
template <class Arguments>
const Arguments *arguments_as(Kernel kernel, const void *arguments) {
    return kernel == kernel_of<Arguments> ? static_cast<const Arguments *>(arguments) : nullptr;
}

// f(const Arguments &), with the arguments of a launch as what they are.
template <class F>
void with_arguments(Kernel kernel, const void *arguments, F &&f) {
    using Typed = void (*)(const void *, F &);
#define MDLM_KERNEL(name, Arguments) [](const void *a, F &g) { g(*static_cast<const Arguments *>(a)); },
    static constexpr Typed typed[] = {MDLM_KERNELS(MDLM_KERNEL)};
#undef MDLM_KERNEL
    typed[static_cast<int>(kernel)](arguments, f);
}

}  // namespace mdlm

// SPDX-License-Identifier: Apache-2.0
// The CPU device: a pool, the linears, and the kernels of this folder.
#include <cstdio>
#include <cstring>

#if defined(__x86_64__) || defined(__i386__)
#include <cpuid.h>
#endif

#include "base/cores.hpp"
#include "base/status.hpp"
#include "device/cpu/kernels.hpp"
#include "device/cpu/linear.hpp"
#include "device/cpu/product.hpp"
#include "device/device.hpp"

namespace mdlm {
namespace cpu {
namespace {

struct Entry {
    void (*run)(Resources &, const void *arguments);
    void (*prepare)(Resources &, const KernelSize &);
};
#define MDLM_KERNEL(name, Arguments)                                                                                   \
    {[](Resources &r, const void *a) { name(r, *static_cast<const Arguments *>(a)); },                                 \
     [](Resources &r, const KernelSize &size) {                                                                        \
         if constexpr (prepared<Arguments>) name##_prepare(r, size);                                                   \
     }},
constexpr Entry entries[] = {MDLM_KERNELS(MDLM_KERNEL)};
#undef MDLM_KERNEL
const Entry &entry(Kernel kernel) { return entries[static_cast<int>(kernel)]; }

constexpr std::array<Workspace, kernel_count> workspaces = {MDLM_KERNELS(MDLM_WORKSPACE)};

}  // namespace
}  // namespace cpu
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
        : threads_(pool->size()), r_{std::move(pool), {threads_, library_for(matmul, threads_)}} {}

    Traits traits() const override { return {MDLM_DEVICE_CPU, threads_}; }
    void describe(char *line, size_t cap) const override {
        const cpu::Library *library = r_.linears.library();
        const auto matmuls = [&](DType type) {
            return library != nullptr && library->runs(type) ? library->name() : "own";
        };
        std::snprintf(line, cap, "cpu: %d thread%s, %s (kernels for %s); matmuls in f32: %s, bf16: %s",
                      static_cast<int>(threads_), threads_ == 1 ? "" : "s", instruction_set(), cpu::kernel_target(),
                      matmuls(DType::f32), matmuls(DType::bf16));
    }

    std::shared_ptr<void> begin_shape() override { return r_.linears.begin_shape(); }
    void prepare(Kernel kernel, const KernelSize &size) override { cpu::entry(kernel).prepare(r_, size); }
    void launch(Kernel kernel, const void *arguments) override { cpu::entry(kernel).run(r_, arguments); }

    void copy(void *to, const void *from, size_t bytes) override {
        if (bytes > 0) std::memmove(to, from, bytes);
    }
    Pool *pool() override { return r_.pool.get(); }
    void zero(void *memory, size_t bytes) override {
        if (bytes > 0) std::memset(memory, 0, bytes);
    }

private:
    int32_t threads_;
    cpu::Resources r_;
};

}  // namespace

std::unique_ptr<Device> make_cpu_device(std::unique_ptr<Pool> pool, mdlm_matmul matmul) {
    return std::make_unique<CpuDevice>(std::move(pool), matmul);
}

constinit const DeviceKind cpu_kind = {
    MDLM_DEVICE_CPU, false, [](DType dtype) { return dtype == DType::f32 || dtype == DType::bf16; },
    [](int32_t asked) { return asked == 0 ? usable_cores() : asked; }, cpu::workspaces};

}  // namespace mdlm

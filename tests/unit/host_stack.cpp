// SPDX-License-Identifier: Apache-2.0
// The library needs little stack of the thread that calls it: mdlm.h says how much.
#include <mdlm/chain.h>

#include <doctest/doctest.h>

#include <pthread.h>

#include <cstdlib>
#include <cstring>
#include <functional>

#include "device/device.hpp"
#include "support/checks.hpp"
#include "support/repro.hpp"
#include "support/rig.hpp"

using namespace mdlm_test;

namespace {

constexpr size_t stack_bytes = 512 << 10;

// Runs body on a thread with a stack of its own, and returns how much of it was touched, what the thread needs for
// itself included; 0 when there was no such thread.
size_t touched(const std::function<void()> &body) {
    void *stack = std::aligned_alloc(4096, stack_bytes);
    std::memset(stack, 0xa5, stack_bytes);
    pthread_attr_t attributes;
    pthread_attr_init(&attributes);
    pthread_attr_setstack(&attributes, stack, stack_bytes);
    pthread_t thread;
    const auto start = [](void *f) -> void * { return (*static_cast<const std::function<void()> *>(f))(), nullptr; };
    size_t used = 0;
    if (pthread_create(&thread, &attributes, start, const_cast<std::function<void()> *>(&body)) == 0) {
        pthread_join(thread, nullptr);
        size_t clean = 0;
        while (clean < stack_bytes && static_cast<unsigned char *>(stack)[clean] == 0xa5) ++clean;
        used = stack_bytes - clean;
    }
    pthread_attr_destroy(&attributes);
    std::free(stack);
    return used;
}

// All that a trainer does, and the planner, with everything that may be large; "" or what is wrong.
std::string life(mdlm_device_kind device, const char *dtype, mdlm_matmul matmul, int32_t threads) {
    const bool slow = device == MDLM_DEVICE_REFERENCE;
    Rig rig({{"num_layers", "2"},
             {"hidden_size", slow ? "32" : "128"},
             {"num_attention_heads", "4"},
             {"num_query_groups", "2"},
             {"params_dtype", dtype},
             {"activation_func", "swiglu"},
             {"normalization", "RMSNorm"},
             {"qk_layernorm", "true"},
             {"attention_backend", threads == 1 ? "unfused" : "fused"}});
    rig.desc.device = device, rig.desc.matmul = matmul, rig.desc.num_threads = threads;
    rig.shape.seq_length = rig.batch.seq_length = slow ? 16 : 64;
    if (rig.open() != MDLM_OK || rig.step() != MDLM_OK) return mdlm_last_error();
    mdlm_plan *plan = nullptr;
    mdlm_config config = rig.config;
    mdlm_memory memory = MDLM_MEMORY_INIT;
    if (mdlm_block_memory(rig.block, &memory) != MDLM_OK) return mdlm_last_error();
    config.memory_budget = int64_t{1} << 30;
    if (mdlm_plan_create(&config, &rig.shape, nullptr, &plan) != MDLM_OK) return mdlm_last_error();
    static thread_local size_t length = 0;
    mdlm_status status = mdlm_plan_print(plan, nullptr, 0, &length);
    if (status == MDLM_OK) status = mdlm_plan_to_json(plan, nullptr, 0, &length);
    mdlm_plan_destroy(plan);
    // Text from outside that nests as deep as it is long.
    const std::string deep(100000, '[');
    mdlm_chain_solve(deep.data(), deep.size(), 1, nullptr, nullptr, 0, nullptr);
    mdlm_device_table(deep.c_str(), nullptr, 0, nullptr);
    config.memory_budget = 0, config.num_layers = -1, config.hidden_dropout = 2, config.hidden_size = 0;
    mdlm_config_validate(&config);
    return status == MDLM_OK ? "" : mdlm_last_error();
}

}  // namespace

TEST_CASE("stack: what a whole life needs of the calling thread's") {
    if (sanitized) {
        skip("because a sanitizer's frames are larger");
        return;
    }
    const size_t nothing = touched([] {});
    size_t most = 0;
    const auto run = [&](mdlm_device_kind device, const char *dtype, mdlm_matmul matmul, int32_t threads) {
        CAPTURE(device);
        CAPTURE(dtype);
        CAPTURE(matmul);
        CAPTURE(threads);
        std::string wrong;
        const size_t used = touched([&] { wrong = life(device, dtype, matmul, threads); });
        CHECK(wrong == "");
        CHECK(used > nothing);
        most = std::max(most, used);
    };
    for (const char *dtype : {"f32", "bf16"})
        for (const int32_t threads : {1, 2}) {
            run(MDLM_DEVICE_CPU, dtype, MDLM_MATMUL_OWN, threads);
            if (mdlm::cpu_has_onednn()) run(MDLM_DEVICE_CPU, dtype, MDLM_MATMUL_ONEDNN, threads);
            run(MDLM_DEVICE_REFERENCE, dtype, MDLM_MATMUL_OWN, threads);
        }
    MESSAGE("stack: ", most, " bytes, of which a thread that does nothing uses ", nothing);
    CHECK(most - nothing <= 128 << 10);
}

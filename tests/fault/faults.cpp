// SPDX-License-Identifier: Apache-2.0
// Every allocation, thread and oneDNN call that the library makes fails once, and from some point on: the call that
// needed it returns a status with a line, nothing leaks, and the same objects then finish the work with the bits that
// they should have.
#include <doctest/doctest.h>

#include <memory>
#include <string>

#include "fault/inject.hpp"
#include "support/checks.hpp"
#include "support/repro.hpp"
#include "support/rig.hpp"

using namespace mdlm_test;

namespace {

enum class Case { reference_full, reference_packed, cpu_offload, cpu_bf16 };

// A life of a block, in stages that can each be run again after they failed.
struct Life {
    FaultyAllocator device, host;
    mdlm_allocator device_table = device.table(), host_table = host.table();
    Rig rig;
    mdlm_plan *read = nullptr;
    mdlm_batch smaller = MDLM_BATCH_INIT;
    static constexpr int32_t documents[] = {0, 3, 8};
    char text[1 << 15];
    size_t length = 0;

    explicit Life(Case which)
        : rig(which == Case::reference_full
                  ? std::initializer_list<std::pair<const char *, const char *>>{{"recompute_granularity", "full"}}
              : which == Case::reference_packed
                  ? std::initializer_list<std::pair<const char *, const char *>>{{"recompute_granularity", "selective"},
                                                                                 {"attention_backend", "unfused"}}
              : which == Case::cpu_offload
                  ? std::initializer_list<std::pair<const char *, const char *>>{{"cpu_offloading", "1"},
                                                                                 {"cpu_offloading_num_layers", "1"}}
                  : std::initializer_list<std::pair<const char *, const char *>>{
                        {"params_dtype", "bf16"},
                        {"activation_func", "swiglu"},
                        {"normalization", "RMSNorm"},
                        {"qk_layernorm", "1"}}) {
        if (which != Case::cpu_bf16) {  // that one has the library's own memory
            rig.desc.device_allocator = &device_table;
            rig.desc.host_allocator = &host_table;
        }
        rig.desc.num_threads = 3;
        if (which == Case::cpu_offload || which == Case::cpu_bf16) rig.desc.device = MDLM_DEVICE_CPU;
        if (which == Case::cpu_offload && inject::have_dnnl()) rig.desc.matmul = MDLM_MATMUL_ONEDNN;
        if (which == Case::reference_packed) {
            rig.shape.max_documents = 2;
            rig.batch.micro_batch_size = 1;
            rig.batch.cu_seqlens = documents;
            rig.batch.num_documents = 2;
        }
        smaller = rig.batch;
        smaller.seq_length = 4;
        smaller.cu_seqlens = nullptr;
        smaller.num_documents = 0;
        rig.make_buffers();
    }
    ~Life() { mdlm_plan_destroy(read); }

    static constexpr int stages = 13;
    mdlm_status stage(int number) {
        switch (number) {
        case 0: return mdlm_context_create(&rig.desc, &rig.context);
        case 1: return mdlm_block_create(rig.context, &rig.config, &rig.block);
        case 2: return mdlm_block_plan(rig.block, &rig.shape, &rig.plan);
        case 3: return mdlm_plan_to_json(rig.plan, text, sizeof text, &length);
        case 4: return mdlm_plan_from_json(&rig.config, &rig.shape, nullptr, text, length, &read);
        case 5: return mdlm_plan_set_unit(read, 0, 2);
        case 6: return mdlm_block_reserve(rig.block, &rig.shape, rig.plan);
        case 7: return mdlm_params_init(rig.block, 42);
        case 8: return mdlm_tape_create(rig.block, &rig.tape);
        case 9: return rig.step();
        case 10: return mdlm_block_prepare(rig.block, &smaller);
        case 11: return smaller_step();
        default: return rig.step();
        }
    }
    mdlm_status smaller_step() {
        std::swap(smaller, rig.batch);
        const mdlm_status status = rig.step();
        std::swap(smaller, rig.batch);
        return status;
    }
    void close() {
        mdlm_plan_destroy(std::exchange(read, nullptr));
        rig.close();
    }
};

struct Outcome {
    int failures = 0, at_stage = -1;
    mdlm_status status = MDLM_OK;
    char line[512] = "";
    uint64_t digest = 0;
    int64_t device_bytes = 0, host_bytes = 0, blocks = 0;
};

// The whole life with a fault armed. After the first failure: with go_on the fault is taken away and the life goes on
// from the stage that failed; without, all is destroyed while the fault still strikes.
Outcome live(Life &life, Fault kind, int64_t n, bool persistent, bool go_on) {
    Outcome out;
    mdlm_set_last_error("");
    const int64_t before = inject::live_blocks();
    inject::arm(kind, n, persistent);
    for (int i = 0; i < Life::stages; ++i) {
        const mdlm_status status = life.stage(i);
        if (status == MDLM_OK) continue;
        if (out.failures++ == 0) {
            out.status = status;
            out.at_stage = i;
            std::strncpy(out.line, mdlm_last_error(), sizeof out.line - 1);
        }
        if (!go_on || out.failures > 1) break;
        inject::disarm();
        --i;
    }
    if (out.failures == (go_on && out.failures > 0 ? 1 : 0)) out.digest = life.rig.digest();
    life.close();
    inject::disarm();
    out.device_bytes = life.device.live_bytes;
    out.host_bytes = life.host.live_bytes;
    out.blocks = inject::live_blocks() - before;
    return out;
}

bool accepted(Fault kind, mdlm_status status) {
    if (kind == Fault::heap || kind == Fault::allocator) return status == MDLM_ERROR_MEMORY;
    if (kind == Fault::thread) return status == MDLM_ERROR_THREAD;
    return status == MDLM_ERROR_DEVICE || status == MDLM_ERROR_MEMORY;
}

// Returns how many places were struck.
int64_t strike_everywhere(Case which, Fault kind) {
    uint64_t good = 0;
    int64_t places = 0;
    {
        for (int warm = 0; warm < 2; ++warm) {  // what a process keeps after its first use is no leak
            Life life(which);
            const Outcome calm = live(life, Fault::none, 0, false, false);
            const std::string gives = std::string(mdlm_status_name(calm.status)) + ": " + calm.line;
            REQUIRE_MESSAGE(calm.failures == 0, "without a fault, stage ", calm.at_stage, " gives ", gives);
            good = calm.digest;
        }
        Life life(which);
        const Outcome calm = live(life, kind, INT64_MAX, false, false);
        places = inject::calls();
        REQUIRE(calm.digest == good);
        CHECK(calm.blocks == 0);
        CHECK(calm.device_bytes == 0);
        CHECK(calm.host_bytes == 0);
    }
    int bad = 0;
    for (int64_t n = 1; n <= places && bad < 5; ++n) {
        for (const bool persistent : {false, true}) {
            for (const bool go_on : {false, true}) {
                // A quarter of each; all without sanitizers.
                if (sanitized && places > 300 && (n + persistent * 2 + go_on) % 4 != 0) continue;
                const auto life = std::make_unique<Life>(which);
                const Outcome out = live(*life, kind, n, persistent, go_on);
                std::string wrong;
                const bool struck = out.failures > 0;
                if (!struck && (persistent || !inject::only_nothrow_struck())) wrong = "no call failed";
                else if (struck && !accepted(kind, out.status)) wrong = "status";
                else if (struck) wrong = wrong_with(out.line, "");
                if (!wrong.empty()) {
                } else if (out.blocks != 0 || out.device_bytes != 0 || out.host_bytes != 0) {
                    wrong = "leak";
                } else if (go_on && out.failures > 1) {
                    wrong = std::string("fails again without the fault: ") + mdlm_last_error();
                } else if ((go_on || !struck) && out.digest != good) {
                    wrong = "other bits afterwards";
                }
                if (wrong.empty()) continue;
                ++bad;
                const std::string how =
                    std::string(persistent ? ", persistent" : ", once") + (go_on ? ", going on" : "");
                const std::string gives = std::string(mdlm_status_name(out.status)) + ": " + out.line;
                FAIL_CHECK("fault ", n, " of ", places, how, ": ", wrong, "; stage ", out.at_stage, " gives ", gives,
                           "; left ", out.blocks, " blocks, ", out.device_bytes, " + ", out.host_bytes, " bytes");
            }
        }
    }
    Life life(which);
    const Outcome after = live(life, Fault::none, 0, false, false);
    CHECK(after.failures == 0);
    CHECK(after.digest == good);
    MESSAGE(places, " places struck");
    return places;
}

}  // namespace

TEST_CASE("every operator new fails: reference, full recompute") {
    CHECK(strike_everywhere(Case::reference_full, Fault::heap) > 50);
}
TEST_CASE("every operator new fails: reference, selective, packed documents") {
    CHECK(strike_everywhere(Case::reference_packed, Fault::heap) > 50);
}
TEST_CASE("every operator new fails: cpu, offloading") {
    CHECK(strike_everywhere(Case::cpu_offload, Fault::heap) > 50);
}
TEST_CASE("every operator new fails: cpu, bf16") { CHECK(strike_everywhere(Case::cpu_bf16, Fault::heap) > 50); }

TEST_CASE("every call of the caller's allocators fails") {
    CHECK(strike_everywhere(Case::reference_full, Fault::allocator) >= 3);
    CHECK(strike_everywhere(Case::reference_packed, Fault::allocator) >= 3);
    CHECK(strike_everywhere(Case::cpu_offload, Fault::allocator) >= 4);
}

TEST_CASE("every thread that cannot be made") {
    CHECK(strike_everywhere(Case::cpu_offload, Fault::thread) == 2);  // of a pool of three, the caller is one
    CHECK(strike_everywhere(Case::cpu_bf16, Fault::thread) == 2);
}

TEST_CASE("every call to oneDNN that returns an error") {
    if (!inject::have_dnnl()) {
        skip("because this build has no oneDNN");
        return;
    }
    const int64_t offload = strike_everywhere(Case::cpu_offload, Fault::dnnl);
    CHECK(offload > 20);
    strike_everywhere(Case::cpu_bf16, Fault::dnnl);  // none where the processor has no bf16 for oneDNN
}

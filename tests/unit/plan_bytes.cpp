// SPDX-License-Identifier: Apache-2.0
// The parts of mdlm_memory add up, whatever the plan: fixed + scratch <= peak <= fixed + in_flight * saved + scratch.
// With stacks apart from the slab, and evaluation passes above them, the second is an equality.
#include <doctest/doctest.h>

#include <cstdio>
#include <string>

#include "support/checks.hpp"
#include "support/repro.hpp"
#include "support/split_mix.hpp"

using namespace mdlm_test;

namespace {

struct Made {
    mdlm_config config = MDLM_CONFIG_INIT;
    mdlm_shape shape = MDLM_SHAPE_INIT;
    mdlm_plan *plan = nullptr;
    ~Made() { mdlm_plan_destroy(plan); }
};

// 0 where the sentence holds, else by how much it does not.
void check_sums(const Made &m) {
    mdlm_memory bytes = MDLM_MEMORY_INIT;
    REQUIRE_OK(mdlm_plan_memory(m.plan, &bytes));
    const uint64_t stacks = static_cast<uint64_t>(m.shape.in_flight) * bytes.saved_bytes;
    CHECK(bytes.fixed_bytes + bytes.scratch_bytes <= bytes.peak_bytes);
    CHECK(bytes.fixed_bytes + stacks <= bytes.peak_bytes);
    CHECK(bytes.peak_bytes <= bytes.fixed_bytes + stacks + bytes.scratch_bytes);
    if (m.shape.evaluate_in_flight != 0 && (m.shape.in_flight > 1 || m.shape.share_scratch != 0))
        CHECK(bytes.peak_bytes == bytes.fixed_bytes + stacks + bytes.scratch_bytes);
}

// Bytes of "1.50 MiB" and the like.
double bytes_of(double value, const char *unit) {
    for (const char *u : {"B", "KiB", "MiB", "GiB"}) {
        if (std::string(unit) == u) return value;
        value *= 1024;
    }
    FAIL("unit ", unit);
    return 0;
}

}  // namespace

TEST_CASE("plans: fixed, saved and scratch bytes add up to the peak, over drawn plans") {
    int64_t with_units = 0, at_the_edge = 0;
    constexpr int64_t draws = 300;
    for (int64_t seed = 0; seed < draws; ++seed) {
        Random r(static_cast<uint64_t>(seed) + 1);
        Made m;
        mdlm_config &c = m.config;
        c.num_layers = r.in(1, 9), c.hidden_size = 16 * r.in(1, 8), c.num_attention_heads = 4;
        c.final_layernorm = r.percent(70), c.hidden_dropout = r.percent(30) ? 0.1 : 0.0;
        c.activation_func = r.percent(50) ? MDLM_ACT_SWIGLU : MDLM_ACT_GELU;
        c.attention_backend = r.percent(30) ? MDLM_ATTENTION_UNFUSED : MDLM_ATTENTION_FUSED;
        if (r.percent(30)) c.cpu_offloading = 1, c.cpu_offloading_num_layers = r.in(1, c.num_layers);
        if (r.percent(30)) c.recompute_granularity = MDLM_RECOMPUTE_GRANULARITY_SELECTIVE;
        c.tensor_model_parallel_size = r.percent(25) ? 2 : 1;
        c.sequence_parallel = r.percent(50);
        m.shape.seq_length = 8 * r.in(1, 12), m.shape.micro_batch_size = r.in(1, 3);
        m.shape.in_flight = r.percent(50) ? 1 : static_cast<int32_t>(r.in(2, 4));
        m.shape.evaluate_in_flight = r.percent(50), m.shape.share_scratch = r.percent(30);
        m.shape.input_storage = r.percent(30) ? MDLM_INPUT_BORROW : MDLM_INPUT_COPY;
        repro("draw " + std::to_string(seed));
        INFO("draw ", seed);
        REQUIRE_OK(mdlm_plan_create(&c, &m.shape, nullptr, &m.plan));
        check_sums(m);
        for (int edit = 0; edit < 3; ++edit) {
            const int64_t first = r.in(0, c.num_layers - 1), count = r.in(1, c.num_layers - first);
            if (c.cpu_offloading == 0) REQUIRE_OK(mdlm_plan_set_unit(m.plan, first, count));
            with_units += count > 1 && c.cpu_offloading == 0;
            for (const char *tensor : {"linear_qkv", "linear_fc1", "mlp_act", "core_attn", "attention_residual"})
                if (r.percent(30))
                    REQUIRE_OK(mdlm_plan_set(m.plan, r.in(0, c.num_layers - 1), tensor, MDLM_STORAGE_REPLAY));
            check_sums(m);
        }
        at_the_edge += m.shape.evaluate_in_flight != 0 && m.shape.in_flight > 1;
    }
    CHECK(with_units > draws / 2);
    CHECK(at_the_edge > draws / 10);
}

TEST_CASE("plans: a unit's replay is scratch with the frames of its layers, in the table too") {
    for (int64_t count = 1; count <= 32; count *= 2) {
        CAPTURE(count);
        Made m;
        m.config.num_layers = 32, m.config.hidden_size = 256, m.config.num_attention_heads = 4;
        m.config.recompute_granularity = MDLM_RECOMPUTE_GRANULARITY_FULL,
        m.config.recompute_method = MDLM_RECOMPUTE_METHOD_UNIFORM, m.config.recompute_num_layers = count;
        m.shape.seq_length = 256, m.shape.micro_batch_size = 1;
        REQUIRE_OK(mdlm_plan_create(&m.config, &m.shape, nullptr, &m.plan));
        check_sums(m);
        char text[1 << 16];
        REQUIRE_OK(mdlm_plan_print(m.plan, text, sizeof text, nullptr));
        const char *head = std::strstr(text, "peak ");
        REQUIRE(head != nullptr);
        unsigned long long peak = 0;
        double fixed = 0, saved = 0, scratch = 0;
        char units[3][8];
        REQUIRE(std::sscanf(head,
                            "peak %llu bytes (%*f %*7[A-Za-z]): fixed %lf %7[A-Za-z], saved %lf %7[A-Za-z] a tape, "
                            "scratch up to %lf %7[A-Za-z]",
                            &peak, &fixed, units[0], &saved, units[1], &scratch, units[2]) == 7);
        const double sum = bytes_of(fixed, units[0]) + bytes_of(saved, units[1]) + bytes_of(scratch, units[2]);
        CHECK(sum >= 0.98 * static_cast<double>(peak));  // two digits are printed
    }
}

// SPDX-License-Identifier: Apache-2.0
// A memory budget through the C ABI: what is asked, what is answered, what is refused.
#include <doctest/doctest.h>

#include <string>
#include <vector>

#include "support/checks.hpp"
#include "support/rig.hpp"

namespace {

struct Made {
    mdlm_plan *plan = nullptr;
    mdlm_memory memory = MDLM_MEMORY_INIT;
    mdlm_plan_cost cost = MDLM_PLAN_COST_INIT;
    explicit Made(const mdlm_config &config, const mdlm_shape &shape, const char *table = nullptr) {
        mdlm_target target = MDLM_TARGET_INIT;
        target.num_threads = 1, target.device_table = table;
        REQUIRE_OK(mdlm_plan_create(&config, &shape, &target, &plan));
        REQUIRE_OK(mdlm_plan_memory(plan, &memory));
        REQUIRE_OK(mdlm_plan_get_cost(plan, &cost));
    }
    Made(const Made &) = delete;
    ~Made() { mdlm_plan_destroy(plan); }
};

mdlm_config diffusion(int64_t layers, int64_t hidden) {
    mdlm_config c = MDLM_CONFIG_INIT;
    c.num_layers = layers, c.hidden_size = hidden, c.num_attention_heads = hidden / 32, c.ffn_hidden_size = 3 * hidden;
    c.normalization = MDLM_NORM_RMSNORM, c.qk_layernorm = 1, c.add_bias_linear = 0, c.activation_func = MDLM_ACT_SWIGLU;
    c.attention_mask_type = MDLM_MASK_NO_MASK, c.params_dtype = MDLM_DTYPE_BF16;
    return c;
}
mdlm_shape shape_of(int64_t seq, int64_t batch, int32_t in_flight = 1) {
    mdlm_shape s = MDLM_SHAPE_INIT;
    s.seq_length = seq, s.micro_batch_size = batch, s.in_flight = in_flight;
    return s;
}

}  // namespace

TEST_CASE("budget: the plan fits, is proven, and its numbers add up") {
    mdlm_config c = diffusion(6, 128);
    const mdlm_shape shape = shape_of(64, 2);
    c.memory_budget = int64_t{1} << 40;
    const Made all(c, shape);
    CHECK(all.cost.extra_ns == 0);
    CHECK(all.cost.optimal == 1);
    CHECK(all.cost.budget_bytes == uint64_t{1} << 40);
    CHECK(all.cost.minimum_budget_bytes < all.memory.peak_bytes);
    c.memory_budget = static_cast<int64_t>((all.memory.peak_bytes + all.cost.minimum_budget_bytes) / 2);
    const Made half(c, shape);
    CHECK(half.memory.peak_bytes <= static_cast<uint64_t>(c.memory_budget));
    CHECK(half.cost.optimal == 1);
    CHECK(half.cost.gap_ns == 0);
    CHECK(half.cost.extra_ns > 0);
    CHECK(half.cost.minimum_budget_bytes == all.cost.minimum_budget_bytes);
    CHECK(half.cost.forward_ns == all.cost.forward_ns);
    CHECK(half.cost.backward_ns == all.cost.backward_ns);
    uint64_t forward = 0, backward = 0, extra = 0;
    for (int64_t i = 0; i <= 6; ++i) {
        mdlm_plan_layer layer = MDLM_PLAN_LAYER_INIT;
        REQUIRE_OK(mdlm_plan_get_layer(half.plan, i, &layer));
        forward += layer.forward_ns, backward += layer.backward_ns, extra += layer.extra_ns;
    }
    CHECK(forward == half.cost.forward_ns);
    CHECK(backward == half.cost.backward_ns);
    CHECK(extra == half.cost.extra_ns);
    // An edited plan has times, and nothing is proven of it.
    REQUIRE_OK(mdlm_plan_set(half.plan, 6, "input", MDLM_STORAGE_KEEP));
    mdlm_plan_cost edited = MDLM_PLAN_COST_INIT;
    REQUIRE_OK(mdlm_plan_get_cost(half.plan, &edited));
    CHECK(edited.extra_ns == half.cost.extra_ns);
    CHECK(edited.budget_bytes == 0);
    CHECK(edited.optimal == 0);
}

TEST_CASE("budget: too small is BUDGET, and names the smallest that does") {
    mdlm_config c = diffusion(4, 64);
    const mdlm_shape shape = shape_of(32, 1);
    c.memory_budget = int64_t{1} << 40;
    const auto least = Made(c, shape).cost.minimum_budget_bytes;
    mdlm_target target = MDLM_TARGET_INIT;
    target.num_threads = 1;
    mdlm_plan *plan = nullptr;
    c.memory_budget = static_cast<int64_t>(least) - 1;
    CHECK_FAILS(mdlm_plan_create(&c, &shape, &target, &plan), MDLM_ERROR_BUDGET,
                ("memory_budget = " + std::to_string(least - 1) + ": the smallest in which any plan fits is " +
                 std::to_string(least))
                    .c_str());
    CHECK(plan == nullptr);
    c.memory_budget = 1;
    CHECK_FAILS(mdlm_plan_create(&c, &shape, &target, &plan), MDLM_ERROR_BUDGET, std::to_string(least).c_str());
    c.memory_budget = static_cast<int64_t>(least);
    CHECK(Made(c, shape).memory.peak_bytes == least);
}

TEST_CASE("budget: parameters and gradients count where the config says so") {
    mdlm_config c = diffusion(4, 64);
    const mdlm_shape shape = shape_of(32, 1);
    c.memory_budget = int64_t{1} << 40;
    const Made alone(c, shape);
    c.memory_budget_includes_parameters = 1;
    const Made both(c, shape);
    const uint64_t outside = both.memory.parameter_bytes + both.memory.gradient_bytes;
    CHECK(both.cost.budget_includes_parameters == 1);
    CHECK(both.cost.minimum_budget_bytes == alone.cost.minimum_budget_bytes + outside);
    c.memory_budget = static_cast<int64_t>(both.cost.minimum_budget_bytes);
    const Made tight(c, shape);
    CHECK(tight.memory.peak_bytes + outside == both.cost.minimum_budget_bytes);
    mdlm_plan *plan = nullptr;
    mdlm_target target = MDLM_TARGET_INIT;
    target.num_threads = 1;
    for (const int64_t budget : {c.memory_budget - 1, static_cast<int64_t>(outside), int64_t{1}}) {
        c.memory_budget = budget;
        CHECK_FAILS(mdlm_plan_create(&c, &shape, &target, &plan), MDLM_ERROR_BUDGET,
                    (std::to_string(both.cost.minimum_budget_bytes) + ", parameters and gradients included").c_str());
    }
}

TEST_CASE("budget: reserve plans by the config, and a plan's JSON needs no budget") {
    mdlm_test::Rig rig{{"num_layers", "4"}, {"memory_budget", "1TiB"}};
    rig.desc.num_threads = 1;
    REQUIRE_OK(rig.open());
    REQUIRE_OK(rig.step());
    const uint64_t bits = rig.digest();
    mdlm_memory most = MDLM_MEMORY_INIT, least = MDLM_MEMORY_INIT;
    REQUIRE_OK(mdlm_block_memory(rig.block, &most));
    mdlm_plan_cost cost = MDLM_PLAN_COST_INIT;
    REQUIRE_OK(mdlm_block_plan(rig.block, &rig.shape, &rig.plan));
    REQUIRE_OK(mdlm_plan_get_cost(rig.plan, &cost));
    rig.close();
    rig.config.memory_budget = static_cast<int64_t>(cost.minimum_budget_bytes);
    REQUIRE_OK(rig.open());
    REQUIRE_OK(mdlm_block_memory(rig.block, &least));
    CHECK(least.peak_bytes == cost.minimum_budget_bytes);
    CHECK(least.peak_bytes < most.peak_bytes);
    REQUIRE_OK(rig.step());
    CHECK(rig.digest() == bits);

    REQUIRE_OK(mdlm_block_plan(rig.block, &rig.shape, &rig.plan));
    size_t length = 0;
    REQUIRE_OK(mdlm_plan_to_json(rig.plan, nullptr, 0, &length));
    std::vector<char> text(length + 1);
    REQUIRE_OK(mdlm_plan_to_json(rig.plan, text.data(), text.size(), nullptr));
    mdlm_config c = rig.config;
    c.memory_budget = 1;  // in which nothing fits: the text's plan is taken as it is
    mdlm_target target = MDLM_TARGET_INIT;
    target.device = MDLM_DEVICE_REFERENCE;
    mdlm_plan *read = nullptr;
    REQUIRE_OK(mdlm_plan_from_json(&c, &rig.shape, &target, text.data(), length, &read));
    mdlm_memory again = MDLM_MEMORY_INIT;
    REQUIRE_OK(mdlm_plan_memory(read, &again));
    CHECK(again.peak_bytes == least.peak_bytes);
    mdlm_plan_destroy(read);
    rig.close();

    rig.config.memory_budget = static_cast<int64_t>(cost.minimum_budget_bytes) - 1;
    rig.open();
    CHECK_FAILS(mdlm_block_reserve(rig.block, &rig.shape, nullptr), MDLM_ERROR_BUDGET,
                std::to_string(cost.minimum_budget_bytes).c_str());
}

TEST_CASE("budget: the frontier is what single budgets give") {
    mdlm_config c = diffusion(5, 128);
    for (const int32_t in_flight : {1, 2, 3}) {
        const mdlm_shape shape = shape_of(64, 1, in_flight);
        mdlm_target target = MDLM_TARGET_INIT;
        target.num_threads = 1;
        size_t count = 0, again = 0;
        uint64_t gap_ns = 1;
        REQUIRE_OK(mdlm_plan_frontier(&c, &shape, &target, nullptr, nullptr, 0, &count, nullptr));
        REQUIRE(count > 10);
        std::vector<uint64_t> peaks(count), times(count);
        REQUIRE_OK(mdlm_plan_frontier(&c, &shape, &target, peaks.data(), times.data(), count, &again, &gap_ns));
        CHECK(again == count);
        CHECK(gap_ns == 0);
        CHECK(times.back() == 0);
        for (size_t i = 0; i < count; ++i) {
            if (i > 0) CHECK((peaks[i] > peaks[i - 1] && times[i] < times[i - 1]));
            if (i % (count / 10) != 0) continue;
            mdlm_config at = c;
            at.memory_budget = static_cast<int64_t>(peaks[i]);
            const Made made(at, shape);
            CHECK(made.cost.extra_ns == times[i]);
            CHECK(made.memory.peak_bytes == peaks[i]);
            CHECK(made.cost.minimum_budget_bytes == peaks[0]);
            if (i == 0) continue;
            at.memory_budget = static_cast<int64_t>(peaks[i]) - 1;
            CHECK(Made(at, shape).cost.extra_ns == times[i - 1]);
        }
    }
}

TEST_CASE("budget: at every budget no setting of Megatron's that fits is faster") {
    struct Case {
        mdlm_config config;
        mdlm_shape shape;
        const char *table;
    };
    std::vector<Case> cases = {{diffusion(16, 256), shape_of(128, 2), "cpu"},
                               {diffusion(8, 2048), shape_of(2048, 1), "H100"},
                               {diffusion(8, 2048), shape_of(2048, 1, 2), "A100-40GB"}};
    mdlm_config gpt = MDLM_CONFIG_INIT;
    gpt.num_layers = 12, gpt.hidden_size = 4096, gpt.num_attention_heads = 32, gpt.add_qkv_bias = 1,
    gpt.params_dtype = MDLM_DTYPE_BF16;
    gpt.position_embedding_type = MDLM_POSITION_NONE, gpt.attention_backend = MDLM_ATTENTION_UNFUSED;
    cases.push_back({gpt, shape_of(2048, 1), "A100-80GB"});
    gpt.tensor_model_parallel_size = 4;
    cases.push_back({gpt, shape_of(2048, 1), "H200"});
    cases.push_back({gpt, shape_of(2048, 1, 3), "H100"});
    gpt.sequence_parallel = 1;
    cases.push_back({gpt, shape_of(2048, 1), "H100"});
    for (const Case &k : cases) {
        std::vector<mdlm_config> settings = {k.config};
        for (uint32_t modules = 1; modules < 64; modules += 3) {
            settings.push_back(k.config);
            settings.back().recompute_granularity = MDLM_RECOMPUTE_GRANULARITY_SELECTIVE,
            settings.back().recompute_modules = modules;
        }
        const bool distributes = k.config.tensor_model_parallel_size > 1 && k.config.sequence_parallel == 0;
        for (int64_t n = 1; n <= k.config.num_layers; ++n)
            for (const mdlm_recompute_method method : {MDLM_RECOMPUTE_METHOD_UNIFORM, MDLM_RECOMPUTE_METHOD_BLOCK})
                for (int32_t d = 0; d <= int32_t{distributes}; ++d) {
                    settings.push_back(k.config);
                    mdlm_config &c = settings.back();
                    c.recompute_granularity = MDLM_RECOMPUTE_GRANULARITY_FULL, c.recompute_method = method,
                    c.recompute_num_layers = n;
                    c.distribute_saved_activations = d;
                }
        int64_t faster = 0;
        for (const mdlm_config &setting : settings) {
            const Made theirs(setting, k.shape, k.table);
            mdlm_config c = k.config;
            c.memory_budget = static_cast<int64_t>(theirs.memory.peak_bytes);
            const Made ours(c, k.shape, k.table);
            INFO("granularity ", setting.recompute_granularity, " method ", setting.recompute_method, " layers ",
                 setting.recompute_num_layers, " modules ", setting.recompute_modules, " budget ", c.memory_budget,
                 " in flight ", k.shape.in_flight, " t ", k.config.tensor_model_parallel_size);
            CHECK(ours.memory.peak_bytes <= theirs.memory.peak_bytes);
            CHECK(ours.cost.extra_ns <= theirs.cost.extra_ns);
            CHECK(ours.cost.optimal == 1);
            faster += ours.cost.extra_ns < theirs.cost.extra_ns;
        }
        CHECK(faster > static_cast<int64_t>(settings.size()) / 2);
    }
}

TEST_CASE("budget: a table with a cap of scratch stands for a device that is not here") {
    mdlm_config c = diffusion(4, 128);
    const mdlm_shape shape = shape_of(64, 1);
    const Made here(c, shape), there(c, shape, "H100");
    CHECK(there.memory.scratch_bytes >= uint64_t{32} << 20);
    CHECK(here.memory.scratch_bytes < there.memory.scratch_bytes);
    CHECK(there.cost.forward_ns < here.cost.forward_ns);
    c.params_dtype = MDLM_DTYPE_F64;
    mdlm_target target = MDLM_TARGET_INIT;
    target.device_table = "H100";
    mdlm_plan *plan = nullptr;
    c.memory_budget = 1 << 30;
    CHECK_FAILS(mdlm_plan_create(&c, &shape, &target, &plan), MDLM_ERROR_UNSUPPORTED, "no rate of linear in f64");
}

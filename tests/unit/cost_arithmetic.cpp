// SPDX-License-Identifier: Apache-2.0
// Costs of huge layers: a FLOP count, a number of bytes or a time that does not fit in 63 bits is refused with
// OVERFLOW, and never wraps to something small. So everything that is counted grows with every size.
#include <doctest/doctest.h>

#include <cmath>
#include <functional>
#include <optional>
#include <string>

#include "layer/derivative.hpp"
#include "support/checks.hpp"

using namespace mdlm_test;

namespace {

struct Size {
    const char *name;
    int64_t low, high;  // doubled from low to high
    void (*set)(mdlm_config &, mdlm_shape &, int64_t);
};
constexpr Size sizes[] = {
    {"num_layers", 1, 4096, [](mdlm_config &c, mdlm_shape &, int64_t v) { c.num_layers = v; }},
    {"hidden_size", 256, 1 << 24, [](mdlm_config &c, mdlm_shape &, int64_t v) { c.hidden_size = v; }},
    {"num_attention_heads", 4, 65536, [](mdlm_config &c, mdlm_shape &, int64_t v) { c.num_attention_heads = v; }},
    {"kv_channels", 2, int64_t{1} << 62, [](mdlm_config &c, mdlm_shape &, int64_t v) { c.kv_channels = v; }},
    {"ffn_hidden_size", 4, int64_t{1} << 62, [](mdlm_config &c, mdlm_shape &, int64_t v) { c.ffn_hidden_size = v; }},
    {"seq_length", 4, 1 << 24, [](mdlm_config &, mdlm_shape &s, int64_t v) { s.seq_length = v; }},
    {"micro_batch_size", 1, 1 << 20, [](mdlm_config &, mdlm_shape &s, int64_t v) { s.micro_batch_size = v; }},
};

struct Base {
    mdlm_config config = MDLM_CONFIG_INIT;
    mdlm_shape shape = MDLM_SHAPE_INIT;
};
// Small; and so large that any size overflows long before it ends.
Base base(bool large, int variant) {
    Base b;
    mdlm_config &c = b.config;
    c.num_layers = 3, c.num_attention_heads = 4, c.kv_channels = 64;
    c.hidden_size = large ? 1 << 18 : 256, c.ffn_hidden_size = large ? 1 << 22 : 512;
    b.shape.seq_length = large ? 1 << 20 : 64, b.shape.micro_batch_size = large ? 16 : 1;
    c.qk_layernorm = 1, c.activation_func = variant == 0 ? MDLM_ACT_GELU : MDLM_ACT_SWIGLU;
    c.hidden_dropout = variant == 1 ? 0.1 : 0.0;
    if (variant == 1) c.attention_backend = MDLM_ATTENTION_UNFUSED;
    if (variant == 2)
        c.tensor_model_parallel_size = 2, c.sequence_parallel = 1, c.attention_mask_type = MDLM_MASK_NO_MASK;
    return b;
}

using Numbers = std::vector<uint64_t>;

// Doubles every size in turn: what `measure` gives grows, and once it overflows it stays so. Returns how often it
// overflowed.
int64_t walk(const std::function<mdlm_status(const Base &, Numbers &)> &measure, std::initializer_list<bool> larges) {
    int64_t overflows = 0;
    for (const bool large : larges)
        for (const int variant : {0, 1, 2})
            for (const Size &size : sizes) {
                Numbers before;
                bool over = false;
                for (uint64_t step = static_cast<uint64_t>(size.low); step <= static_cast<uint64_t>(size.high);
                     step *= 2) {
                    const auto v = static_cast<int64_t>(step);
                    Base b = base(large, variant);
                    size.set(b.config, b.shape, v);
                    INFO(size.name, " = ", v, large ? ", large" : ", small", ", variant ", variant);
                    Numbers now;
                    const mdlm_status status = measure(b, now);
                    if (status != MDLM_OK) {
                        CHECK_MESSAGE(status == MDLM_ERROR_OVERFLOW, said(status));
                        over = true, ++overflows;
                        continue;
                    }
                    CHECK_FALSE(over);
                    for (size_t i = 0; i < now.size(); ++i) {
                        CAPTURE(i);
                        CHECK(now[i] <= uint64_t{INT64_MAX});
                        if (!before.empty()) CHECK(now[i] >= before[i]);
                    }
                    before = now;
                }
            }
    return overflows;
}

// What linears alone take in one forward, on one rank.
double linear_flops(const mdlm_config &c, const mdlm_shape &s) {
    const double h = double(c.hidden_size), inner = double(c.num_attention_heads) * double(c.kv_channels),
                 ffn = double(c.ffn_hidden_size);
    const double gates = c.activation_func == MDLM_ACT_SWIGLU ? 2 : 1;
    const double weights = h * (4 * inner + (gates + 1) * ffn);  // as many query groups as heads
    return 2 * double(s.seq_length) * double(s.micro_batch_size) * double(c.num_layers) * weights /
           double(c.tensor_model_parallel_size);
}

}  // namespace

TEST_CASE("costs: a plan's FLOPs, bytes and times grow with every size, or are refused") {
    const int64_t overflows = walk(
        [](const Base &b, Numbers &out) {
            mdlm_target target = MDLM_TARGET_INIT;
            target.device_table = "H100";
            Base given = b;
            given.config.params_dtype = MDLM_DTYPE_BF16;
            mdlm_plan *plan = nullptr;
            mdlm_memory memory = MDLM_MEMORY_INIT;
            mdlm_plan_cost cost = MDLM_PLAN_COST_INIT;
            mdlm_status status = mdlm_plan_create(&given.config, &given.shape, &target, &plan);
            if (status == MDLM_OK) status = mdlm_plan_memory(plan, &memory);
            if (status == MDLM_OK) status = mdlm_plan_get_cost(plan, &cost);
            double flops = 0;
            if (status == MDLM_OK)
                out = {memory.saved_bytes, memory.parameter_bytes, memory.gradient_bytes, cost.forward_ns,
                       cost.backward_ns};
            for (int64_t i = 0; status == MDLM_OK && i < given.config.num_layers; ++i) {
                mdlm_plan_layer layer = MDLM_PLAN_LAYER_INIT;
                status = mdlm_plan_get_layer(plan, i, &layer);
                flops += double(layer.forward_flops);
                if (i == 0)
                    out.insert(out.end(),
                               {layer.forward_flops, layer.backward_flops, layer.forward_ns, layer.backward_ns});
            }
            mdlm_plan_destroy(plan);
            if (status == MDLM_OK) {
                CHECK(flops >= linear_flops(given.config, given.shape) * (1 - 1e-9));
                CHECK(flops < 9.3e18);
            }
            return status;
        },
        {false, true});
    CHECK(overflows > 100);
}

TEST_CASE("costs: with a budget, too") {
    const int64_t overflows = walk(
        [](const Base &b, Numbers &out) {
            Base given = b;
            given.config.num_layers = 1;
            given.config.memory_budget = INT64_MAX;
            mdlm_plan *plan = nullptr;
            mdlm_plan_cost cost = MDLM_PLAN_COST_INIT;
            mdlm_status status = mdlm_plan_create(&given.config, &given.shape, nullptr, &plan);
            if (status == MDLM_OK) status = mdlm_plan_get_cost(plan, &cost);
            if (status == MDLM_OK) out = {cost.forward_ns, cost.backward_ns};
            if (status == MDLM_OK) CHECK(cost.extra_ns == 0);
            mdlm_plan_destroy(plan);
            return status;
        },
        {true});
    CHECK(overflows > 20);
}

TEST_CASE("costs: every op's numbers grow with every size, or are refused") {
    const int64_t overflows = walk(
        [](const Base &b, Numbers &out) -> mdlm_status {
            try {
                const auto program =
                    std::make_shared<const mdlm::Program>(mdlm::make_layer_program(mdlm::resolve(b.config)));
                const auto d = mdlm::differentiate(program, std::vector<char>(program->params.size(), 1), true);
                const mdlm::Extent e = {b.shape.seq_length * b.shape.micro_batch_size, b.shape.seq_length};
                for (const auto *ops : {&program->ops, &d->backward})
                    for (const auto &op : *ops) {
                        const mdlm::Cost c = op->cost(e);
                        for (int64_t v : {c.flops, c.bytes, c.done, c.collective})
                            out.push_back(static_cast<uint64_t>(v));
                    }
                return MDLM_OK;
            } catch (const mdlm::Error &e) {
                return e.status();
            }
        },
        {false, true});
    CHECK(overflows > 50);
}

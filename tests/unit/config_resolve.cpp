// SPDX-License-Identifier: Apache-2.0
// The resolved view of settings, inside, and the ranges of shapes.
#include <cmath>
#include <cstring>
#include <limits>
#include <string>
#include <utility>

#include <doctest/doctest.h>

#include "base/config.hpp"
#include "base/status.hpp"
#include "config_support.hpp"
#include "mdlm/mdlm.h"

TEST_CASE("resolve: every default worked out") {
    using mdlm::resolve;
    const mdlm::Config c = resolve(small());
    CHECK(c.num_query_groups == 8);
    CHECK(c.kv_channels == 8);
    CHECK(c.ffn_hidden_size == 256);
    CHECK(c.rotary_dim == 8);
    CHECK(c.softmax_scale == 1.0 / std::sqrt(8.0));
    CHECK(c.output_init_std == 0.02 / std::sqrt(8.0));
    CHECK(c.total_num_layers == 4);
    CHECK(c.params_dtype == mdlm::DType::f32);
    CHECK(c.grad_dtype == mdlm::DType::f32);
    CHECK(c.attention_backend == MDLM_ATTENTION_FUSED);
    CHECK(c.recompute_method == MDLM_RECOMPUTE_METHOD_NONE);
    CHECK(c.recompute_num_layers == 0);
    CHECK(c.recompute_modules == 0);
    CHECK(c.qkv_size() == 24 * 8);
    CHECK(c.fc1_size() == 256);
    CHECK(c.context_size() == 64);

    mdlm_config raw = small();
    raw.recompute_granularity = MDLM_RECOMPUTE_GRANULARITY_FULL;
    raw.position_embedding_type = MDLM_POSITION_NONE;
    raw.sequence_parallel = 1;
    raw.params_dtype = MDLM_DTYPE_F64;
    raw.activation_func = MDLM_ACT_GEGLU;
    const mdlm::Config full = resolve(raw);
    CHECK(full.recompute_method == MDLM_RECOMPUTE_METHOD_UNIFORM);
    CHECK(full.recompute_num_layers == 1);
    CHECK(full.rotary_dim == 0);
    CHECK_FALSE(full.sequence_parallel);
    CHECK(full.grad_dtype == mdlm::DType::f64);
    CHECK(full.fc1_size() == 512);
    raw.recompute_granularity = MDLM_RECOMPUTE_GRANULARITY_SELECTIVE;
    CHECK(resolve(raw).recompute_modules == (MDLM_RECOMPUTE_MODULE_QKV | MDLM_RECOMPUTE_MODULE_CORE_ATTN));
    raw.recompute_granularity = 7;
    CHECK_THROWS_AS(resolve(raw), mdlm::Error);

    // Of the whole model, however it is cut into stages.
    mdlm_config stage = small();
    stage.layer_offset = 4;
    CHECK(resolve(stage).output_init_std == 0.02 / std::sqrt(16.0));
    stage.total_num_layers = 32;
    CHECK(resolve(stage).output_init_std == 0.02 / std::sqrt(64.0));
    stage.output_init_std = 0.5;
    CHECK(resolve(stage).output_init_std == 0.5);
}

TEST_CASE("resolve: linear_qkv has a bias where all linears have one, or by itself") {
    uint64_t digests[2][2];
    for (const int32_t all : {0, 1})
        for (const int32_t qkv : {0, 1}) {
            mdlm_config raw = small();
            raw.add_bias_linear = all, raw.add_qkv_bias = qkv;
            const mdlm::Config c = mdlm::resolve(raw);
            CHECK(c.add_bias_linear == (all == 1));
            CHECK(c.add_qkv_bias == (all == 1 || qkv == 1));
            CHECK(c.raw.add_qkv_bias == qkv);
            digests[all][qkv] = c.digest;
        }
    CHECK(digests[1][0] == digests[1][1]);
    CHECK(digests[0][0] != digests[0][1]);
}

TEST_CASE("resolve: the digest is of the model, not of how it is written, recomputed or initialised") {
    const uint64_t digest = mdlm::resolve(small()).digest;
    mdlm_config c = small();
    c.num_query_groups = 8;
    c.kv_channels = 8;
    c.ffn_hidden_size = 256;
    c.softmax_scale = 1.0 / std::sqrt(8.0);
    c.grad_dtype = MDLM_DTYPE_F32;
    c.attention_backend = MDLM_ATTENTION_FUSED;
    c.sequence_parallel = 1;
    c.recompute_granularity = MDLM_RECOMPUTE_GRANULARITY_FULL;
    c.recompute_num_layers = 2;
    c.cpu_offloading = 1;
    c.cpu_offloading_num_layers = 2;
    c.init_method_std = 0.5;
    CHECK(mdlm::resolve(c).digest == digest);
    c = small();
    c.memory_budget = 1 << 30, c.memory_budget_includes_parameters = 1;
    CHECK(mdlm::resolve(c).digest == digest);
    c.tensor_model_parallel_size = 2;
    CHECK(mdlm::resolve(c).digest != digest);
    c = small();
    c.hidden_dropout = 0.1;
    CHECK(mdlm::resolve(c).digest != digest);
    CHECK(mdlm::digest_of("") == 0xcbf29ce484222325u);
    CHECK(mdlm::digest_of("a") == 0xaf63dc4c8601ec8cu);  // published test vectors of FNV-1a
    CHECK(mdlm::digest_of("foobar") == 0x85944171f73967e8u);
    CHECK(mdlm::digest_of("bar", mdlm::digest_of("foo")) == mdlm::digest_of("foobar"));
}

TEST_CASE("shape: ranges, tokens, sequence parallelism, overflow") {
    mdlm_config raw = small();
    const auto refuses = [&](mdlm_status status, auto change) -> std::string {
        mdlm_shape shape = MDLM_SHAPE_INIT;
        shape.seq_length = 10;
        shape.micro_batch_size = 3;
        change(shape);
        try {
            mdlm::check_shape(mdlm::resolve(raw), shape);
        } catch (const mdlm::Error &e) {
            CHECK(e.status() == status);
            return e.what();
        }
        return "";
    };
    constexpr mdlm_status bad = MDLM_ERROR_SHAPE, argument = MDLM_ERROR_ARGUMENT;
    CHECK(refuses(bad, [](mdlm_shape &) {}) == "");
    CHECK(refuses(bad, [](mdlm_shape &s) { s.seq_length = 0; }) == "shape: seq_length = 0: expected 1 .. 16777216");
    CHECK(refuses(bad, [](mdlm_shape &s) { s.seq_length = (1 << 24) + 1; }) ==
          "shape: seq_length = 16777217: expected 1 .. 16777216");
    CHECK(refuses(bad, [](mdlm_shape &s) { s.micro_batch_size = -1; }) ==
          "shape: micro_batch_size = -1: expected 1 .. 1048576");
    CHECK(refuses(bad, [](mdlm_shape &s) { s.max_tokens = 9; }) == "shape: max_tokens = 9: expected 10 .. 30");
    CHECK(refuses(bad, [](mdlm_shape &s) { s.max_tokens = 31; }) == "shape: max_tokens = 31: expected 10 .. 30");
    CHECK(refuses(bad, [](mdlm_shape &s) { s.max_documents = 11; }) == "shape: max_documents = 11: expected 0 .. 10");
    CHECK(refuses(bad, [](mdlm_shape &s) { s.in_flight = 0; }) == "shape: in_flight = 0: expected 1 .. 65536");
    CHECK(refuses(argument, [](mdlm_shape &s) { s.input_storage = 2; }) ==
          "shape: input_storage = 2: expected COPY (0) or BORROW (1)");
    CHECK(refuses(argument, [](mdlm_shape &s) { s.input_requires_grad = -1; }) ==
          "shape: input_requires_grad = -1: expected 0 or 1");
    CHECK(refuses(argument, [](mdlm_shape &s) { s.evaluate_in_flight = 2; }) ==
          "shape: evaluate_in_flight = 2: expected 0 or 1");
    const auto largest = [](mdlm_shape &s) {
        s.seq_length = 1 << 24;
        s.micro_batch_size = 1 << 20;
    };
    CHECK(refuses(bad, largest) == "");
    raw.ffn_hidden_size = int64_t{1} << 20;
    CHECK(
        refuses(MDLM_ERROR_OVERFLOW, largest) ==
        "shape: seq_length = 16777216, micro_batch_size = 1048576: the bytes of one activation do not fit in 63 bits");
    raw = small();
    raw.attention_backend = MDLM_ATTENTION_UNFUSED;
    CHECK(refuses(MDLM_ERROR_OVERFLOW, largest) != "");

    raw.tensor_model_parallel_size = 4;
    CHECK(refuses(bad, [](mdlm_shape &) {}) == "");
    raw.sequence_parallel = 1;
    CHECK(refuses(bad, [](mdlm_shape &) {}) ==
          "seq_length = 10 is not divisible by tensor_model_parallel_size = 4, as sequence_parallel needs");
    mdlm_shape shape = MDLM_SHAPE_INIT;
    shape.seq_length = 10;
    shape.micro_batch_size = 3;
    CHECK(mdlm::most_tokens(shape) == 30);
    shape.max_tokens = 12;
    CHECK(mdlm::most_tokens(shape) == 12);
}

// SPDX-License-Identifier: Apache-2.0
// NULL for every pointer of every function of the C ABI: ARGUMENT, one line that names it, and nothing else happens.
#include <doctest/doctest.h>
#include <mdlm/chain.h>

#include "support/checks.hpp"
#include "support/rig.hpp"

using namespace mdlm_test;

#define CHECK_NULL(call, word) CHECK_FAILS(call, MDLM_ERROR_ARGUMENT, word)

TEST_CASE("init functions: NULL and a size that cannot hold the size") {
#define TRY_INIT(name)                                                                                                 \
    do {                                                                                                               \
        mdlm_##name v;                                                                                                 \
        CHECK_NULL(mdlm_##name##_init(nullptr, sizeof v), "NULL");                                                     \
        CHECK_NULL(mdlm_##name##_init(&v, 0), "struct_size");                                                          \
        CHECK_NULL(mdlm_##name##_init(&v, sizeof(size_t) - 1), "struct_size");                                         \
        CHECK_OK(mdlm_##name##_init(&v, sizeof v));                                                                    \
        CHECK(v.struct_size == sizeof v);                                                                              \
    } while (0)
    TRY_INIT(config);
    TRY_INIT(object_counts);
    TRY_INIT(allocator);
    TRY_INIT(threadpool);
    TRY_INIT(chain_options);
    TRY_INIT(comm_table);
    TRY_INIT(context_desc);
    TRY_INIT(context_stats);
    TRY_INIT(shape);
    TRY_INIT(memory);
    TRY_INIT(target);
    TRY_INIT(plan_layer);
    TRY_INIT(plan_cost);
    TRY_INIT(param_desc);
    TRY_INIT(batch);
    TRY_INIT(io);
    TRY_INIT(tape_stats);
    TRY_INIT(backward_options);
}

TEST_CASE("NULL in functions on configs") {
    mdlm_config config = MDLM_CONFIG_INIT;
    char text[8];
    size_t length = 0;
    int used = 7;
    const char *const flags[] = {"--num-layers", nullptr};
    CHECK_NULL(mdlm_config_set(nullptr, "num_layers", "2"), "config");
    CHECK_NULL(mdlm_config_set(&config, nullptr, "2"), "key");
    CHECK_NULL(mdlm_config_set(&config, "num_layers", nullptr), "value");
    CHECK_NULL(mdlm_config_get(nullptr, "num_layers", text, sizeof text, &length), "config");
    CHECK_NULL(mdlm_config_get(&config, nullptr, text, sizeof text, &length), "key");
    CHECK_NULL(mdlm_config_get(&config, "num_layers", nullptr, sizeof text, &length), "buf");
    CHECK_OK(mdlm_config_get(&config, "num_layers", nullptr, 0, &length));
    CHECK_OK(mdlm_config_get(&config, "num_layers", text, sizeof text, nullptr));
    CHECK_NULL(mdlm_config_parse_flags(nullptr, 2, flags, &used), "config");
    CHECK_NULL(mdlm_config_parse_flags(&config, 2, nullptr, &used), "argv");
    CHECK_FAILS(mdlm_config_parse_flags(&config, 2, flags, &used), MDLM_ERROR_CONFIG,
                "--num-layers");  // NULL ends argv
    CHECK_NULL(mdlm_config_parse_flags(&config, 2, flags, nullptr), "used");
    CHECK_NULL(mdlm_config_parse_flags(&config, -1, flags, &used), "argc");
    CHECK(used == 7);
    CHECK_NULL(mdlm_config_validate(nullptr), "config");
    CHECK(mdlm_config_key(-1) == nullptr);
    CHECK(mdlm_config_key(mdlm_config_key_count()) == nullptr);
    CHECK(mdlm_config_key(mdlm_config_key_count() - 1) != nullptr);
    mdlm_set_last_error(nullptr);
    CHECK(std::strcmp(mdlm_last_error(), "") == 0);
}

TEST_CASE("NULL in functions on contexts") {
    Rig rig;
    REQUIRE_OK(rig.open());
    void *memory = nullptr;
    char text[8];
    size_t length = 0;
    mdlm_context_stats stats = MDLM_CONTEXT_STATS_INIT;
    CHECK_NULL(mdlm_context_create(nullptr, nullptr), "out");
    CHECK_NULL(mdlm_context_info(nullptr, text, sizeof text, &length), "context");
    CHECK_NULL(mdlm_context_info(rig.context, nullptr, sizeof text, &length), "buf");
    CHECK_NULL(mdlm_context_last_error(nullptr, text, sizeof text, &length), "context");
    CHECK_NULL(mdlm_context_last_error(rig.context, nullptr, sizeof text, &length), "buf");
    CHECK_NULL(mdlm_context_synchronize(nullptr), "context");
    CHECK_NULL(mdlm_context_alloc(nullptr, 64, &memory), "context");
    CHECK_NULL(mdlm_context_alloc(rig.context, 64, nullptr), "out");
    CHECK_NULL(mdlm_context_alloc(rig.context, 0, &memory), "bytes");
    CHECK_NULL(mdlm_context_free(nullptr, text, 8), "context");
    CHECK_NULL(mdlm_context_free(rig.context, nullptr, 8), "memory");
    CHECK_NULL(mdlm_context_copy(nullptr, text, text, 0), "context");
    CHECK_NULL(mdlm_context_copy(rig.context, nullptr, text, 8), "destination");
    CHECK_NULL(mdlm_context_copy(rig.context, text, nullptr, 8), "source");
    CHECK_OK(mdlm_context_copy(rig.context, nullptr, nullptr, 0));
    CHECK_NULL(mdlm_context_set_observer(nullptr, nullptr, nullptr), "context");
    CHECK_NULL(mdlm_context_get_stats(nullptr, &stats), "context");
    CHECK_NULL(mdlm_context_get_stats(rig.context, nullptr), "stats");
    mdlm_context_destroy(nullptr);
    CHECK(memory == nullptr);
    CHECK_OK(rig.step());
}

TEST_CASE("NULL in functions on plans") {
    Rig rig;
    REQUIRE_OK(rig.open());
    REQUIRE_OK(mdlm_block_plan(rig.block, &rig.shape, &rig.plan));
    mdlm_plan *plan = nullptr;
    mdlm_storage storage = 77;
    mdlm_plan_layer layer = MDLM_PLAN_LAYER_INIT;
    mdlm_memory memory = MDLM_MEMORY_INIT;
    char text[8];
    CHECK_NULL(mdlm_plan_create(nullptr, &rig.shape, nullptr, &plan), "config");
    CHECK_NULL(mdlm_plan_create(&rig.config, nullptr, nullptr, &plan), "shape");
    CHECK_NULL(mdlm_plan_create(&rig.config, &rig.shape, nullptr, nullptr), "out");
    CHECK_NULL(mdlm_plan_set(nullptr, 0, "norm1", MDLM_STORAGE_KEEP), "plan");
    CHECK_NULL(mdlm_plan_set(rig.plan, 0, nullptr, MDLM_STORAGE_KEEP), "tensor");
    CHECK_NULL(mdlm_plan_get(nullptr, 0, "input", &storage), "plan");
    CHECK_NULL(mdlm_plan_get(rig.plan, 0, nullptr, &storage), "tensor");
    CHECK_NULL(mdlm_plan_get(rig.plan, 0, "input", nullptr), "out");
    CHECK_NULL(mdlm_plan_set_unit(nullptr, 0, 1), "plan");
    CHECK(mdlm_plan_tensor(nullptr, 0, 0) == nullptr);
    CHECK_NULL(mdlm_plan_get_layer(nullptr, 0, &layer), "plan");
    CHECK_NULL(mdlm_plan_get_layer(rig.plan, 0, nullptr), "info");
    CHECK_NULL(mdlm_plan_memory(nullptr, &memory), "plan");
    CHECK_NULL(mdlm_plan_memory(rig.plan, nullptr), "memory");
    CHECK_NULL(mdlm_plan_print(nullptr, text, sizeof text, nullptr), "plan");
    CHECK_NULL(mdlm_plan_print(rig.plan, nullptr, sizeof text, nullptr), "buf");
    CHECK_NULL(mdlm_plan_to_json(nullptr, text, sizeof text, nullptr), "plan");
    CHECK_NULL(mdlm_plan_to_json(rig.plan, nullptr, sizeof text, nullptr), "buf");
    CHECK_NULL(mdlm_plan_from_json(nullptr, &rig.shape, nullptr, "{}", 2, &plan), "config");
    CHECK_NULL(mdlm_plan_from_json(&rig.config, nullptr, nullptr, "{}", 2, &plan), "shape");
    CHECK_NULL(mdlm_plan_from_json(&rig.config, &rig.shape, nullptr, nullptr, 2, &plan), "text");
    CHECK_NULL(mdlm_plan_from_json(&rig.config, &rig.shape, nullptr, "{}", 2, nullptr), "out");
    CHECK_FAILS(mdlm_plan_from_json(&rig.config, &rig.shape, nullptr, "", 0, &plan), MDLM_ERROR_FORMAT, "");
    mdlm_plan_destroy(nullptr);
    CHECK(plan == nullptr);
    CHECK(storage == 77);
    CHECK_OK(rig.step());
}

TEST_CASE("NULL in functions on blocks and parameters") {
    Rig rig;
    REQUIRE_OK(rig.open());
    mdlm_block *block = nullptr;
    mdlm_plan *plan = nullptr;
    mdlm_memory memory = MDLM_MEMORY_INIT;
    mdlm_param_desc desc = MDLM_PARAM_DESC_INIT;
    mdlm_io io = MDLM_IO_INIT;
    int64_t index = 77;
    void *data = nullptr;
    float values[64] = {};
    CHECK_NULL(mdlm_block_create(nullptr, &rig.config, &block), "context");
    CHECK_NULL(mdlm_block_create(rig.context, nullptr, &block), "config");
    CHECK_NULL(mdlm_block_create(rig.context, &rig.config, nullptr), "out");
    CHECK_NULL(mdlm_block_plan(nullptr, &rig.shape, &plan), "block");
    CHECK_NULL(mdlm_block_plan(rig.block, nullptr, &plan), "shape");
    CHECK_NULL(mdlm_block_plan(rig.block, &rig.shape, nullptr), "out");
    CHECK_NULL(mdlm_block_reserve(nullptr, &rig.shape, nullptr), "block");
    CHECK_NULL(mdlm_block_reserve(rig.block, nullptr, nullptr), "shape");
    CHECK_NULL(mdlm_block_memory(nullptr, &memory), "block");
    CHECK_NULL(mdlm_block_memory(rig.block, nullptr), "memory");
    CHECK_NULL(mdlm_param_count(nullptr, &index), "block");
    CHECK_NULL(mdlm_param_count(rig.block, nullptr), "out");
    CHECK_NULL(mdlm_param_info(nullptr, 0, &desc), "block");
    CHECK_NULL(mdlm_param_info(rig.block, 0, nullptr), "desc");
    CHECK_NULL(mdlm_param_find(nullptr, "final_layernorm.weight", &index), "block");
    CHECK_NULL(mdlm_param_find(rig.block, nullptr, &index), "name");
    CHECK_NULL(mdlm_param_find(rig.block, "final_layernorm.weight", nullptr), "out");
    CHECK_NULL(mdlm_param_set_requires_grad(nullptr, 0, 1), "block");
    CHECK_NULL(mdlm_params_bind(nullptr, nullptr, 0, nullptr, 0), "block");
    CHECK_NULL(mdlm_params_bind(rig.block, nullptr, 64, nullptr, 0), "params");
    CHECK_NULL(mdlm_params_bind(rig.block, nullptr, 0, nullptr, 64), "grads");
    CHECK_OK(mdlm_params_bind(rig.block, nullptr, 0, nullptr, 0));
    CHECK_NULL(mdlm_param_bind(nullptr, 0, nullptr, nullptr), "block");
    CHECK_OK(mdlm_param_bind(rig.block, 0, nullptr, nullptr));
    CHECK_NULL(mdlm_params_data(nullptr, &data, nullptr, &data, nullptr), "block");
    CHECK_OK(mdlm_params_data(rig.block, nullptr, nullptr, nullptr, nullptr));
    CHECK_NULL(mdlm_param_data(nullptr, 0, &data, &data), "block");
    CHECK_OK(mdlm_param_data(rig.block, 0, nullptr, nullptr));
    CHECK_NULL(mdlm_params_init(nullptr, 0), "block");
    CHECK_NULL(mdlm_param_write(nullptr, 0, nullptr, nullptr, nullptr, MDLM_DTYPE_F32, values, sizeof values), "block");
    CHECK_NULL(mdlm_param_write(rig.block, 0, nullptr, nullptr, nullptr, MDLM_DTYPE_F32, nullptr, sizeof values),
               "host");
    CHECK_NULL(mdlm_param_read(nullptr, 0, nullptr, nullptr, nullptr, MDLM_DTYPE_F32, values, sizeof values), "block");
    CHECK_NULL(mdlm_param_read(rig.block, 0, nullptr, nullptr, nullptr, MDLM_DTYPE_F32, nullptr, sizeof values),
               "host");
    CHECK_NULL(mdlm_param_grad_read(nullptr, 0, nullptr, nullptr, nullptr, MDLM_DTYPE_F32, values, sizeof values),
               "block");
    CHECK_NULL(mdlm_param_grad_read(rig.block, 0, nullptr, nullptr, nullptr, MDLM_DTYPE_F32, nullptr, sizeof values),
               "host");
    CHECK_NULL(mdlm_param_gather(nullptr, 0, MDLM_DTYPE_F32, values, 64), "block");
    CHECK_NULL(mdlm_param_gather(rig.block, 0, MDLM_DTYPE_F32, nullptr, 64), "host");
    CHECK_NULL(mdlm_param_grad_gather(nullptr, 0, MDLM_DTYPE_F32, values, 64), "block");
    CHECK_NULL(mdlm_param_grad_gather(rig.block, 0, MDLM_DTYPE_F32, nullptr, 64), "host");
    CHECK_NULL(mdlm_count_objects(nullptr), "counts");
    const auto shard_write = [&](mdlm_block *of, void *shard, const void *host) {
        return mdlm_param_shard_write(of, 0, shard, MDLM_DTYPE_F32, 64, nullptr, nullptr, nullptr, MDLM_DTYPE_F32, host,
                                      64);
    };
    const auto shard_read = [&](mdlm_block *of, const void *shard, void *host) {
        return mdlm_param_shard_read(of, 0, shard, MDLM_DTYPE_F32, 64, nullptr, nullptr, nullptr, MDLM_DTYPE_F32, host,
                                     64);
    };
    const auto shard_gather = [&](mdlm_block *of, const void *shard, void *host) {
        return mdlm_param_shard_gather(of, 0, shard, MDLM_DTYPE_F32, 64, MDLM_DTYPE_F32, host, 64);
    };
    CHECK_NULL(shard_write(nullptr, values, values), "block");
    CHECK_NULL(shard_write(rig.block, nullptr, values), "shard");
    CHECK_NULL(shard_write(rig.block, values, nullptr), "host");
    CHECK_NULL(shard_read(nullptr, values, values), "block");
    CHECK_NULL(shard_read(rig.block, nullptr, values), "shard");
    CHECK_NULL(shard_read(rig.block, values, nullptr), "host");
    CHECK_NULL(shard_gather(nullptr, values, values), "block");
    CHECK_NULL(shard_gather(rig.block, nullptr, values), "shard");
    CHECK_NULL(shard_gather(rig.block, values, nullptr), "host");
    CHECK_NULL(mdlm_params_changed(nullptr), "block");
    CHECK_NULL(mdlm_params_zero_grads(nullptr), "block");
    CHECK_NULL(mdlm_block_io(nullptr, &rig.batch, &io), "block");
    CHECK_NULL(mdlm_block_io(rig.block, nullptr, &io), "batch");
    CHECK_NULL(mdlm_block_io(rig.block, &rig.batch, nullptr), "io");
    CHECK_NULL(mdlm_block_prepare(nullptr, &rig.batch), "block");
    CHECK_NULL(mdlm_block_prepare(rig.block, nullptr), "batch");
    mdlm_block_destroy(nullptr);
    CHECK(block == nullptr);
    CHECK(plan == nullptr);
    CHECK(index == 77);
    CHECK_OK(rig.step());
}

TEST_CASE("NULL in functions on tapes, and in forward and backward") {
    Rig rig;
    REQUIRE_OK(rig.open());
    REQUIRE_OK(rig.step());
    const uint64_t good = rig.digest();
    mdlm_tape *tape = nullptr;
    mdlm_tape_stats stats = MDLM_TAPE_STATS_INIT;
    CHECK_NULL(mdlm_tape_create(nullptr, &tape), "block");
    CHECK_NULL(mdlm_tape_create(rig.block, nullptr), "out");
    CHECK_NULL(mdlm_tape_reset(nullptr), "tape");
    CHECK_NULL(mdlm_tape_set_documents(nullptr, nullptr, 0), "tape");
    CHECK_NULL(mdlm_tape_set_documents(rig.tape, nullptr, 1), "cu_seqlens");
    CHECK_NULL(mdlm_tape_get_stats(nullptr, &stats), "tape");
    CHECK_NULL(mdlm_tape_get_stats(rig.tape, nullptr), "stats");
    CHECK_NULL(mdlm_block_forward(nullptr, &rig.batch, rig.x.get(), rig.tape, rig.y.get()), "block");
    CHECK_NULL(mdlm_block_forward(rig.block, nullptr, rig.x.get(), rig.tape, rig.y.get()), "batch");
    CHECK_NULL(mdlm_block_forward(rig.block, &rig.batch, nullptr, rig.tape, rig.y.get()), "x");
    CHECK_NULL(mdlm_block_forward(rig.block, &rig.batch, rig.x.get(), rig.tape, nullptr), "y");
    REQUIRE_OK(mdlm_params_zero_grads(rig.block));
    REQUIRE_OK(rig.forward());
    CHECK_NULL(mdlm_block_backward(nullptr, rig.tape, nullptr, rig.dy.get(), rig.dx.get()), "block");
    CHECK_NULL(mdlm_block_backward(rig.block, nullptr, nullptr, rig.dy.get(), rig.dx.get()), "tape");
    CHECK_NULL(mdlm_block_backward(rig.block, rig.tape, nullptr, nullptr, rig.dx.get()), "dy");
    CHECK_NULL(mdlm_block_backward(rig.block, rig.tape, nullptr, rig.dy.get(), nullptr), "dx");
    CHECK_OK(rig.backward());
    CHECK(rig.digest() == good);
    mdlm_tape_destroy(nullptr);
    CHECK(tape == nullptr);
}

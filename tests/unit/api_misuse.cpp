// SPDX-License-Identifier: Apache-2.0
// Wrong values in structs and arguments of the C ABI: sizes, enumerations, ranges, alignment, what a device cannot do.
#include <doctest/doctest.h>

#include <functional>

#include "support/checks.hpp"
#include "support/rig.hpp"

using namespace mdlm_test;

namespace {

mdlm_context *create_context(const std::function<void(mdlm_context_desc &)> &change, mdlm_status expected,
                             const char *word) {
    mdlm_context_desc desc = MDLM_CONTEXT_DESC_INIT;
    desc.device = MDLM_DEVICE_REFERENCE;
    change(desc);
    mdlm_context *context = nullptr;
    CHECK_FAILS(mdlm_context_create(&desc, &context), expected, word);
    CHECK(context == nullptr);
    return context;
}

// A shape with one thing changed is refused for a plan and for reserve alike, with the same line; the reservation
// stays.
void refuse_shape(const std::function<void(mdlm_shape &)> &change, mdlm_status expected, const char *word) {
    Rig rig;
    REQUIRE_OK(rig.open());
    mdlm_tape_destroy(std::exchange(rig.tape, nullptr));
    mdlm_shape shape = rig.shape;
    change(shape);
    mdlm_plan *plan = nullptr;
    CHECK_FAILS(mdlm_plan_create(&rig.config, &shape, nullptr, &plan), expected, word);
    CHECK_FAILS(mdlm_block_plan(rig.block, &shape, &plan), expected, word);
    CHECK(plan == nullptr);
    CHECK_FAILS(mdlm_block_reserve(rig.block, &shape, nullptr), expected, word);
    REQUIRE_OK(mdlm_tape_create(rig.block, &rig.tape));
    CHECK_OK(rig.step());
}

}  // namespace

TEST_CASE("structs of other versions") {
    Rig rig;
    SUBCASE("a size that is not set") {
        rig.config.struct_size = 0;
        CHECK_FAILS(rig.open(), MDLM_ERROR_ARGUMENT, "struct_size");
    }
    SUBCASE("shape, batch and results too") {
        REQUIRE_OK(rig.open());
        rig.batch.struct_size = 1;
        CHECK_FAILS(rig.step(), MDLM_ERROR_ARGUMENT, "struct_size");
        rig.batch.struct_size = sizeof rig.batch;
        mdlm_memory memory = MDLM_MEMORY_INIT;
        memory.struct_size = 2;
        CHECK_FAILS(mdlm_block_memory(rig.block, &memory), MDLM_ERROR_ARGUMENT, "struct_size");
        CHECK_OK(rig.step());
    }
    SUBCASE("larger, with a tail of zeros: taken; with something in it: refused") {
        struct {
            mdlm_shape shape;
            unsigned char tail[32];
        } later = {rig.shape, {}};
        later.shape.struct_size = sizeof later;
        mdlm_plan *plan = nullptr;
        CHECK_OK(mdlm_plan_create(&rig.config, &later.shape, nullptr, &plan));
        mdlm_plan_destroy(std::exchange(plan, nullptr));
        later.tail[31] = 1;
        CHECK_FAILS(mdlm_plan_create(&rig.config, &later.shape, nullptr, &plan), MDLM_ERROR_UNSUPPORTED, "shape");
        CHECK(plan == nullptr);
    }
    SUBCASE("smaller: the rest has its defaults, and results are not written past it") {
        REQUIRE_OK(rig.open());
        mdlm_memory memory = MDLM_MEMORY_INIT;
        memory.struct_size = offsetof(mdlm_memory, saved_bytes);
        memory.saved_bytes = 77;
        CHECK_OK(mdlm_block_memory(rig.block, &memory));
        CHECK(memory.peak_bytes > 0);
        CHECK(memory.saved_bytes == 77);
        mdlm_shape shape = rig.shape;
        shape.in_flight = 77777777;  // behind the end that struct_size says
        shape.struct_size = offsetof(mdlm_shape, max_tokens);
        mdlm_plan *plan = nullptr;
        CHECK_OK(mdlm_block_plan(rig.block, &shape, &plan));
        mdlm_plan_destroy(plan);
    }
}

TEST_CASE("a context that cannot be") {
    create_context([](auto &d) { d.device = MDLM_DEVICE_CUDA; }, MDLM_ERROR_UNSUPPORTED, "CUDA");
    create_context([](auto &d) { d.device = 7; }, MDLM_ERROR_ARGUMENT, "device");
    create_context([](auto &d) { d.device = -1; }, MDLM_ERROR_ARGUMENT, "device");
    create_context([](auto &d) { d.device_index = 1; }, MDLM_ERROR_ARGUMENT, "device_index");
    create_context([](auto &d) { d.num_threads = -1; }, MDLM_ERROR_ARGUMENT, "num_threads");
    create_context([](auto &d) { d.num_threads = 1025; }, MDLM_ERROR_ARGUMENT, "num_threads");
    mdlm_threadpool pool = {sizeof(mdlm_threadpool), 0, 0,
                            [](void *, int64_t, void (*)(void *, int64_t, int32_t), void *) {}, nullptr};
    create_context([&](auto &d) { d.threadpool = &pool; }, MDLM_ERROR_ARGUMENT, "num_threads");
    pool.num_threads = 2;
    pool.parallel_for = nullptr;
    create_context([&](auto &d) { d.threadpool = &pool; }, MDLM_ERROR_ARGUMENT, "parallel_for");
    const mdlm_allocator half = {sizeof(mdlm_allocator),
                                 [](void *, size_t, size_t, void *) -> void * { return nullptr; }, nullptr, nullptr};
    create_context([&](auto &d) { d.device_allocator = &half; }, MDLM_ERROR_ARGUMENT, "allocator");
    create_context([&](auto &d) { d.host_allocator = &half; }, MDLM_ERROR_ARGUMENT, "allocator");
    mdlm_allocator whole = half;
    whole.free = [](void *, void *, size_t, size_t, void *) {};
    for (const size_t size : {size_t{0}, sizeof(size_t), sizeof whole - 1, sizeof whole + 5000}) {
        whole.struct_size = pool.struct_size = size;
        create_context([&](auto &d) { d.device_allocator = &whole; }, MDLM_ERROR_ARGUMENT, "desc.device_allocator");
        create_context([&](auto &d) { d.host_allocator = &whole; }, MDLM_ERROR_ARGUMENT, "desc.host_allocator");
        create_context([&](auto &d) { d.threadpool = &pool; }, MDLM_ERROR_ARGUMENT, "desc.threadpool");
    }
    pool = {sizeof(mdlm_threadpool), 1, 3, [](void *, int64_t, void (*)(void *, int64_t, int32_t), void *) {}, nullptr};
    create_context([&](auto &d) { d.threadpool = &pool; }, MDLM_ERROR_ARGUMENT, "reserved = 3");
    create_context([&](auto &d) { d.stream = &pool; }, MDLM_ERROR_ARGUMENT, "stream");
    create_context([](auto &d) { d.struct_size = 3; }, MDLM_ERROR_ARGUMENT, "struct_size");
}

TEST_CASE("a block that cannot be") {
    Rig rig;
    REQUIRE_OK(rig.open());
    mdlm_block *block = nullptr;
    mdlm_config config = rig.config;
    config.hidden_size = 15;
    CHECK_FAILS(mdlm_block_create(rig.context, &config, &block), MDLM_ERROR_CONFIG, "hidden_size");
    config = MDLM_CONFIG_INIT;
    CHECK_FAILS(mdlm_block_create(rig.context, &config, &block), MDLM_ERROR_CONFIG, "num_layers");
    config = rig.config;
    config.params_dtype = MDLM_DTYPE_F16;
    CHECK_FAILS(mdlm_block_create(rig.context, &config, &block), MDLM_ERROR_UNSUPPORTED, "f16");
    config = rig.config;
    config.tensor_model_parallel_size = 2;
    CHECK_FAILS(mdlm_block_create(rig.context, &config, &block), MDLM_ERROR_UNSUPPORTED, "tensor_model_parallel_size");
    config = rig.config;
    config.activation_func = 99;
    CHECK_FAILS(mdlm_block_create(rig.context, &config, &block), MDLM_ERROR_CONFIG, "activation_func");
    CHECK(block == nullptr);
    CHECK_OK(rig.step());
}

TEST_CASE("f64 on the CPU is refused at create time") {
    Rig rig{{"params_dtype", "f64"}};
    rig.desc.device = MDLM_DEVICE_CPU;
    CHECK_FAILS(rig.open(), MDLM_ERROR_UNSUPPORTED, "f64");
}

TEST_CASE("shapes that cannot be") {
    refuse_shape([](auto &s) { s.seq_length = 0; }, MDLM_ERROR_SHAPE, "seq_length");
    refuse_shape([](auto &s) { s.seq_length = -1; }, MDLM_ERROR_SHAPE, "seq_length");
    refuse_shape([](auto &s) { s.seq_length = (1 << 24) + 1; }, MDLM_ERROR_SHAPE, "seq_length");
    refuse_shape([](auto &s) { s.micro_batch_size = 0; }, MDLM_ERROR_SHAPE, "micro_batch_size");
    refuse_shape([](auto &s) { s.micro_batch_size = (1 << 20) + 1; }, MDLM_ERROR_SHAPE, "micro_batch_size");
    refuse_shape([](auto &s) { s.max_tokens = -1; }, MDLM_ERROR_SHAPE, "max_tokens");
    refuse_shape([](auto &s) { s.max_documents = -1; }, MDLM_ERROR_SHAPE, "max_documents");
    refuse_shape([](auto &s) { s.max_documents = 9; }, MDLM_ERROR_SHAPE, "max_documents");
    refuse_shape([](auto &s) { s.in_flight = 0; }, MDLM_ERROR_SHAPE, "in_flight");
    refuse_shape([](auto &s) { s.in_flight = 65537; }, MDLM_ERROR_SHAPE, "in_flight");
    refuse_shape([](auto &s) { s.evaluate_in_flight = 2; }, MDLM_ERROR_ARGUMENT, "evaluate_in_flight");
    refuse_shape([](auto &s) { s.input_requires_grad = -1; }, MDLM_ERROR_ARGUMENT, "input_requires_grad");
    refuse_shape([](auto &s) { s.input_storage = 9; }, MDLM_ERROR_ARGUMENT, "input_storage");
}

TEST_CASE("sizes past 63 bits") {
    Rig rig{{"hidden_size", "16777216"}, {"num_attention_heads", "65536"}, {"num_layers", "4096"}};
    mdlm_plan *plan = nullptr;
    rig.shape.seq_length = 1 << 24;
    rig.shape.micro_batch_size = 1 << 20;
    CHECK_FAILS(mdlm_plan_create(&rig.config, &rig.shape, nullptr, &plan), MDLM_ERROR_OVERFLOW, "63");
    rig.shape.in_flight = 65536;
    CHECK_FAILS(mdlm_plan_create(&rig.config, &rig.shape, nullptr, &plan), MDLM_ERROR_OVERFLOW, "63");
    CHECK(plan == nullptr);
}

TEST_CASE("a size that no machine has is MEMORY, and the block is as before") {
    Rig rig;
    REQUIRE_OK(rig.open());
    REQUIRE_OK(rig.step());
    const uint64_t good = rig.digest();
    mdlm_tape_destroy(std::exchange(rig.tape, nullptr));
    mdlm_shape shape = rig.shape;
    shape.seq_length = 1 << 16;
    shape.micro_batch_size = 1 << 20;  // 2^42 bytes a tensor
    CHECK_FAILS(mdlm_block_reserve(rig.block, &shape, nullptr), MDLM_ERROR_MEMORY, "bytes");
    REQUIRE_OK(mdlm_tape_create(rig.block, &rig.tape));
    CHECK_OK(rig.step());
    CHECK(rig.digest() == good);
}

TEST_CASE("misaligned data") {
    Rig rig;
    REQUIRE_OK(rig.open());
    REQUIRE_OK(rig.step());
    const uint64_t good = rig.digest();
    const auto off = [](Buffer &b) { return static_cast<void *>(static_cast<unsigned char *>(b.get()) + 2); };
    CHECK_FAILS(mdlm_block_forward(rig.block, &rig.batch, off(rig.x), rig.tape, rig.y.get()), MDLM_ERROR_ARGUMENT, "x");
    CHECK_FAILS(mdlm_block_forward(rig.block, &rig.batch, rig.x.get(), rig.tape, off(rig.y)), MDLM_ERROR_ARGUMENT, "y");
    REQUIRE_OK(mdlm_params_zero_grads(rig.block));
    REQUIRE_OK(rig.forward());
    CHECK_FAILS(mdlm_block_backward(rig.block, rig.tape, nullptr, off(rig.dy), rig.dx.get()), MDLM_ERROR_ARGUMENT,
                "dy");
    CHECK_FAILS(mdlm_block_backward(rig.block, rig.tape, nullptr, rig.dy.get(), off(rig.dx)), MDLM_ERROR_ARGUMENT,
                "dx");
    CHECK_OK(rig.backward());
    CHECK(rig.digest() == good);
    Buffer bound(1 << 16);
    CHECK_FAILS(mdlm_params_bind(rig.block, off(bound), bound.size() - 64, nullptr, 0), MDLM_ERROR_ARGUMENT, "params");
    CHECK_FAILS(mdlm_params_bind(rig.block, nullptr, 0, off(bound), bound.size() - 64), MDLM_ERROR_ARGUMENT, "grads");
    CHECK_FAILS(mdlm_param_bind(rig.block, 0, off(bound), nullptr), MDLM_ERROR_ARGUMENT, "aligned");
    CHECK_FAILS(mdlm_param_bind(rig.block, 0, nullptr, off(bound)), MDLM_ERROR_ARGUMENT, "aligned");
}

TEST_CASE("parameters: indices, boxes, parts, sizes, dtypes") {
    Rig rig;
    REQUIRE_OK(rig.open());
    int64_t count = 0, qkv = 0, found = 77;
    REQUIRE_OK(mdlm_param_count(rig.block, &count));
    mdlm_param_desc desc = MDLM_PARAM_DESC_INIT;
    void *data = nullptr;
    for (const int64_t index : {int64_t{-1}, count, INT64_MAX, INT64_MIN}) {
        CHECK_FAILS(mdlm_param_info(rig.block, index, &desc), MDLM_ERROR_ARGUMENT, "index");
        CHECK_FAILS(mdlm_param_data(rig.block, index, &data, nullptr), MDLM_ERROR_ARGUMENT, "index");
        CHECK_FAILS(mdlm_param_bind(rig.block, index, nullptr, nullptr), MDLM_ERROR_ARGUMENT, "index");
        CHECK_FAILS(mdlm_param_write(rig.block, index, nullptr, nullptr, nullptr, MDLM_DTYPE_F32, &desc, 4),
                    MDLM_ERROR_ARGUMENT, "index");
        CHECK_FAILS(mdlm_param_read(rig.block, index, nullptr, nullptr, nullptr, MDLM_DTYPE_F32, &desc, 4),
                    MDLM_ERROR_ARGUMENT, "index");
        CHECK_FAILS(mdlm_param_gather(rig.block, index, MDLM_DTYPE_F32, &desc, 4), MDLM_ERROR_ARGUMENT, "index");
    }
    CHECK_FAILS(mdlm_param_find(rig.block, "layers.0.no_such_thing", &found), MDLM_ERROR_NOT_FOUND, "no_such_thing");
    CHECK(found == 77);
    REQUIRE_OK(mdlm_param_find(rig.block, "layers.0.self_attention.linear_qkv.weight", &qkv));
    std::vector<float> host(48 * 16);
    const size_t bytes = host.size() * sizeof(float);
    const auto read = [&](const char *part, std::vector<int64_t> start, std::vector<int64_t> counts, mdlm_dtype dtype,
                          size_t size) {
        return mdlm_param_read(rig.block, qkv, part, start.empty() ? nullptr : start.data(),
                               counts.empty() ? nullptr : counts.data(), dtype, host.data(), size);
    };
    CHECK_OK(read(nullptr, {}, {}, MDLM_DTYPE_F32, bytes));
    CHECK_OK(read("q", {}, {}, MDLM_DTYPE_F32, bytes / 3));
    CHECK_OK(read(nullptr, {47, 0}, {1, 16}, MDLM_DTYPE_F32, 64));
    CHECK_FAILS(read(nullptr, {}, {}, MDLM_DTYPE_F32, bytes - 1), MDLM_ERROR_ARGUMENT, "bytes");
    CHECK_FAILS(read(nullptr, {}, {}, MDLM_DTYPE_F32, bytes + 1), MDLM_ERROR_ARGUMENT, "bytes");
    CHECK_FAILS(read(nullptr, {}, {}, 99, bytes), MDLM_ERROR_ARGUMENT, "dtype");
    CHECK_FAILS(read("gate", {}, {}, MDLM_DTYPE_F32, bytes), MDLM_ERROR_NOT_FOUND, "gate");
    CHECK_FAILS(read(nullptr, {-1, 0}, {1, 16}, MDLM_DTYPE_F32, 64), MDLM_ERROR_ARGUMENT, "start");
    CHECK_FAILS(read(nullptr, {INT64_MIN, 0}, {}, MDLM_DTYPE_F32, 64), MDLM_ERROR_ARGUMENT,
                "start");  // no count that would fit
    CHECK_FAILS(read(nullptr, {0, INT64_MAX}, {}, MDLM_DTYPE_F32, 64), MDLM_ERROR_ARGUMENT, "start");
    CHECK_FAILS(read(nullptr, {48, 0}, {1, 16}, MDLM_DTYPE_F32, 64), MDLM_ERROR_ARGUMENT, "start");
    CHECK_FAILS(read(nullptr, {0, 1}, {1, 16}, MDLM_DTYPE_F32, 64), MDLM_ERROR_ARGUMENT, "count");
    CHECK_FAILS(read(nullptr, {0, 0}, {1, -16}, MDLM_DTYPE_F32, 64), MDLM_ERROR_ARGUMENT, "count");
    CHECK_FAILS(read(nullptr, {1, 1}, {INT64_MAX, INT64_MAX}, MDLM_DTYPE_F32, 64), MDLM_ERROR_ARGUMENT, "count");
    CHECK_OK(rig.step());
}

TEST_CASE("plans: layers, tensors, storages, units") {
    Rig rig;
    mdlm_plan *plan = nullptr;
    REQUIRE_OK(mdlm_plan_create(&rig.config, &rig.shape, nullptr, &plan));
    rig.plan = plan;
    mdlm_storage storage = 77;
    mdlm_plan_layer layer = MDLM_PLAN_LAYER_INIT;
    CHECK_FAILS(mdlm_plan_get(plan, 0, "no_such_tensor", &storage), MDLM_ERROR_NOT_FOUND, "no_such_tensor");
    CHECK_FAILS(mdlm_plan_set(plan, 0, "no_such_tensor", MDLM_STORAGE_KEEP), MDLM_ERROR_NOT_FOUND, "no_such_tensor");
    CHECK_FAILS(mdlm_plan_get(plan, 3, "input", &storage), MDLM_ERROR_ARGUMENT, "layer");
    CHECK_FAILS(mdlm_plan_get(plan, -1, "input", &storage), MDLM_ERROR_ARGUMENT, "layer");
    CHECK_FAILS(mdlm_plan_set(plan, -2, "input", MDLM_STORAGE_KEEP), MDLM_ERROR_ARGUMENT, "layer");
    CHECK_FAILS(mdlm_plan_set(plan, 0, "input", 9), MDLM_ERROR_ARGUMENT, "storage");
    CHECK_FAILS(mdlm_plan_set(plan, 0, "input", MDLM_STORAGE_REPLAY), MDLM_ERROR_CONFIG, "input");
    CHECK_FAILS(mdlm_plan_set_unit(plan, 0, 0), MDLM_ERROR_ARGUMENT, "unit");
    CHECK_FAILS(mdlm_plan_set_unit(plan, 1, 2), MDLM_ERROR_ARGUMENT, "unit");
    CHECK_FAILS(mdlm_plan_set_unit(plan, -1, 1), MDLM_ERROR_ARGUMENT, "unit");
    CHECK_FAILS(mdlm_plan_set_unit(plan, 0, INT64_MAX), MDLM_ERROR_ARGUMENT, "unit");
    CHECK_FAILS(mdlm_plan_get_layer(plan, 3, &layer), MDLM_ERROR_ARGUMENT, "layer");
    CHECK(mdlm_plan_tensor(plan, 0, -1) == nullptr);
    CHECK(mdlm_plan_tensor(plan, 0, 9999) == nullptr);
    CHECK(mdlm_plan_tensor(plan, 99, 0) == nullptr);
    CHECK(storage == 77);
    REQUIRE_OK(rig.open());
    CHECK_OK(rig.step());
}

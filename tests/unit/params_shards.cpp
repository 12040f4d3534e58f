// SPDX-License-Identifier: Apache-2.0
// Boxes of parameters on memory of the caller: moments, masters and averages of any dtype beside the parameters.
#include <doctest/doctest.h>

#include <string>
#include <vector>

#include "support/checks.hpp"
#include "support/rig.hpp"

using namespace mdlm_test;

namespace {

constexpr mdlm_dtype f32 = MDLM_DTYPE_F32, f64 = MDLM_DTYPE_F64, bf16 = MDLM_DTYPE_BF16, f16 = MDLM_DTYPE_F16;

int64_t index_of(mdlm_block *block, const char *name) {
    int64_t index = -1;
    REQUIRE_OK(mdlm_param_find(block, name, &index));
    return index;
}

}  // namespace

TEST_CASE("shards: a float32 moment beside bf16 parameters, and neither touches the other") {
    Rig rig({{"params_dtype", "bf16"},
             {"activation_func", "swiglu"},
             {"num_query_groups", "1"},
             {"ffn_hidden_size", "10"}});
    rig.make_buffers();
    REQUIRE_OK(mdlm_context_create(&rig.desc, &rig.context));
    REQUIRE_OK(mdlm_block_create(rig.context, &rig.config, &rig.block));
    const int64_t qkv = index_of(rig.block, "layers.1.self_attention.linear_qkv.weight"),
                  fc1 = index_of(rig.block, "layers.0.mlp.linear_fc1.weight");
    const int64_t rows = 32, h = 16, d = 8;  // 2 heads, a key, a value
    const size_t elements = static_cast<size_t>(rows * h), bytes = elements * 4;
    std::vector<float> moment(elements), value(elements), back(elements);
    for (size_t i = 0; i < elements; ++i) value[i] = 1.0f + 1e-6f * static_cast<float>(i);  // bf16 would lose these
    // Before any reservation.
    CHECK_OK(mdlm_param_shard_write(rig.block, qkv, moment.data(), f32, bytes, nullptr, nullptr, nullptr, f32,
                                    value.data(), bytes));
    CHECK(moment == value);
    CHECK_OK(mdlm_param_shard_read(rig.block, qkv, moment.data(), f32, bytes, nullptr, nullptr, nullptr, f32,
                                   back.data(), bytes));
    CHECK(back == value);
    // Parts and boxes stand as in the parameter: the key behind both heads, up behind gate.
    std::vector<float> key(static_cast<size_t>(d * h));
    CHECK_OK(mdlm_param_shard_read(rig.block, qkv, moment.data(), f32, bytes, "k", nullptr, nullptr, f32, key.data(),
                                   key.size() * 4));
    CHECK(std::memcmp(key.data(), value.data() + 2 * d * h, key.size() * 4) == 0);
    std::vector<float> gated(static_cast<size_t>(20 * h));
    const int64_t start[] = {3, 5}, count[] = {2, 4};
    const std::vector<float> box(8, 7.0f);
    CHECK_OK(mdlm_param_shard_write(rig.block, fc1, gated.data(), f32, gated.size() * 4, "up", start, count, f32,
                                    box.data(), 32));
    for (int64_t r = 0; r < 20; ++r)
        for (int64_t c = 0; c < h; ++c)
            CHECK(gated[static_cast<size_t>(r * h + c)] == (r >= 13 && r < 15 && c >= 5 && c < 9 ? 7.0f : 0.0f));

    // Any dtypes, any addresses.
    for (const mdlm_dtype stored : {f32, f64, bf16, f16})
        for (const mdlm_dtype host : {f32, f64, bf16, f16})
            for (const size_t off : {0, 1, 3}) {
                const size_t a = (stored == f64   ? 8u
                                  : stored == f32 ? 4u
                                                  : 2u) *
                                 16,
                             b = (host == f64   ? 8u
                                  : host == f32 ? 4u
                                                : 2u) *
                                 16;
                std::vector<unsigned char> shard(a + off), from(b + off), to(b + off);
                const int64_t norm = index_of(rig.block, "final_layernorm.weight");
                std::vector<double> numbers(16);
                for (int i = 0; i < 16; ++i) numbers[static_cast<size_t>(i)] = i / 8.0 - 1;  // exact in all
                std::vector<double> none(16);
                REQUIRE_OK(mdlm_param_shard_write(rig.block, norm, from.data() + off, host, b, nullptr, nullptr,
                                                  nullptr, f64, numbers.data(), 128));
                CHECK_OK(mdlm_param_shard_write(rig.block, norm, shard.data() + off, stored, a, nullptr, nullptr,
                                                nullptr, host, from.data() + off, b));
                CHECK_OK(mdlm_param_shard_read(rig.block, norm, shard.data() + off, stored, a, nullptr, nullptr,
                                               nullptr, host, to.data() + off, b));
                CHECK(from == to);
                CHECK_OK(
                    mdlm_param_shard_gather(rig.block, norm, shard.data() + off, stored, a, f64, none.data(), 128));
                CHECK(none == numbers);
            }

    // No parameter has changed: a tape survives it, and the step has its bits.
    REQUIRE_OK(mdlm_block_reserve(rig.block, &rig.shape, nullptr));
    REQUIRE_OK(mdlm_params_init(rig.block, 42));
    REQUIRE_OK(mdlm_tape_create(rig.block, &rig.tape));
    REQUIRE_OK(rig.step());
    const uint64_t good = rig.digest();
    REQUIRE_OK(mdlm_params_zero_grads(rig.block));
    REQUIRE_OK(rig.forward());
    CHECK_OK(mdlm_param_shard_write(rig.block, qkv, moment.data(), f32, bytes, nullptr, nullptr, nullptr, f32,
                                    value.data(), bytes));
    CHECK_OK(rig.backward());
    CHECK(rig.digest() == good);
    // On the parameter's own memory it is mdlm_param_read.
    void *own = nullptr;
    REQUIRE_OK(mdlm_param_data(rig.block, qkv, &own, nullptr));
    CHECK_OK(mdlm_param_shard_read(rig.block, qkv, own, bf16, elements * 2, "v", nullptr, nullptr, f32, key.data(),
                                   key.size() * 4));
    std::vector<float> same(key.size());
    CHECK_OK(mdlm_param_read(rig.block, qkv, "v", nullptr, nullptr, f32, same.data(), same.size() * 4));
    CHECK(key == same);
}

TEST_CASE("shards: what is refused") {
    Rig rig;
    REQUIRE_OK(rig.open());
    const int64_t norm = index_of(rig.block, "final_layernorm.weight");  // 16 elements
    std::vector<float> shard(16, 3.0f), host(16, 5.0f);
    const auto write = [&](int64_t index, void *s, mdlm_dtype stored, size_t shard_bytes, const void *from,
                           mdlm_dtype dtype, size_t bytes) {
        return mdlm_param_shard_write(rig.block, index, s, stored, shard_bytes, nullptr, nullptr, nullptr, dtype, from,
                                      bytes);
    };
    const auto read = [&](int64_t index, const void *s, mdlm_dtype stored, size_t shard_bytes, void *to,
                          mdlm_dtype dtype, size_t bytes) {
        return mdlm_param_shard_read(rig.block, index, s, stored, shard_bytes, nullptr, nullptr, nullptr, dtype, to,
                                     bytes);
    };
    const auto gather = [&](int64_t index, const void *s, mdlm_dtype stored, size_t shard_bytes, void *to,
                            mdlm_dtype dtype, size_t bytes) {
        return mdlm_param_shard_gather(rig.block, index, s, stored, shard_bytes, dtype, to, bytes);
    };
    const auto all = [&](const auto &f) {
        for (const int64_t index : {int64_t{-1}, INT64_MAX, INT64_MIN})
            CHECK_FAILS(f(index, shard.data(), f32, 64, host.data(), f32, 64), MDLM_ERROR_ARGUMENT, "index");
        CHECK_FAILS(f(norm, nullptr, f32, 64, host.data(), f32, 64), MDLM_ERROR_ARGUMENT, "shard");
        CHECK_FAILS(f(norm, shard.data(), f32, 64, nullptr, f32, 64), MDLM_ERROR_ARGUMENT, "host");
        for (const size_t size : {size_t{0}, size_t{60}, size_t{63}, size_t{65}, size_t{32}, size_t{128}, SIZE_MAX})
            CHECK_FAILS(f(norm, shard.data(), f32, size, host.data(), f32, 64), MDLM_ERROR_ARGUMENT, "expected 64");
        for (const size_t size : {size_t{0}, size_t{63}, size_t{65}, SIZE_MAX})
            CHECK_FAILS(f(norm, shard.data(), f32, 64, host.data(), f32, size), MDLM_ERROR_ARGUMENT, "expected 64");
        CHECK_FAILS(f(norm, shard.data(), f64, 64, host.data(), f32, 64), MDLM_ERROR_ARGUMENT, "expected 128");
        for (const mdlm_dtype dtype : {0, 5, -1}) {
            CHECK_FAILS(f(norm, shard.data(), dtype, 64, host.data(), f32, 64), MDLM_ERROR_ARGUMENT, "shard_dtype");
            CHECK_FAILS(f(norm, shard.data(), f32, 64, host.data(), dtype, 64), MDLM_ERROR_ARGUMENT, "dtype");
        }
    };
    all(write);
    all(read);
    all(gather);
    CHECK_FAILS(
        mdlm_param_shard_read(rig.block, norm, shard.data(), f32, 64, "q", nullptr, nullptr, f32, host.data(), 64),
        MDLM_ERROR_NOT_FOUND, "q");
    const int64_t start[] = {INT64_MIN}, past[] = {17};
    CHECK_FAILS(
        mdlm_param_shard_read(rig.block, norm, shard.data(), f32, 64, nullptr, start, nullptr, f32, host.data(), 64),
        MDLM_ERROR_ARGUMENT, "start");
    CHECK_FAILS(
        mdlm_param_shard_read(rig.block, norm, shard.data(), f32, 64, nullptr, past, nullptr, f32, host.data(), 64),
        MDLM_ERROR_ARGUMENT, "start");
    CHECK(shard == std::vector<float>(16, 3.0f));
    CHECK(host == std::vector<float>(16, 5.0f));
    CHECK_OK(rig.step());
}

// SPDX-License-Identifier: Apache-2.0
// Addresses of the caller's arrays: aligned as an element is, and the same bits wherever they begin.
#include <doctest/doctest.h>

#include <array>
#include <functional>
#include <string>
#include <vector>

#include "block/block.hpp"
#include "support/checks.hpp"
#include "support/rank_rig.hpp"
#include "support/wrapped_device.hpp"

using namespace mdlm_test;

namespace {

using Settings = std::initializer_list<std::pair<const char *, const char *>>;

constexpr size_t line = 64, guard = 64;

// An array that begins `off` bytes behind the beginning of a line of the cache, between guards.
class Placed {
public:
    Placed(Buffer &content, size_t off) : bytes_(content.size()), group_(2 * guard + 2 * line + bytes_, 0xa5) {
        unsigned char *from = group_.data() + guard;
        at_ = from + (line - reinterpret_cast<uintptr_t>(from) % line) % line + off;
        std::memcpy(at_, content.get(), bytes_);
    }
    void *get() { return at_; }
    uint64_t digest(uint64_t hash) const { return fnv(at_, bytes_, hash); }
    bool guards_are_whole() const {
        for (const unsigned char &c : group_)
            if ((&c < at_ || &c >= at_ + bytes_) && c != 0xa5) return false;
        return true;
    }

private:
    size_t bytes_;
    std::vector<unsigned char> group_;
    unsigned char *at_;
};

// Of y, dx and the gradients of a step whose arrays begin at these distances in bytes; 0 where something beside them
// was written.
uint64_t step(Rig &rig, std::array<size_t, 4> off) {
    Placed x(rig.x, off[0]), y(rig.y, off[1]), dy(rig.dy, off[2]), dx(rig.dx, off[3]);
    if (mdlm_params_zero_grads(rig.block) != MDLM_OK ||
        mdlm_block_forward(rig.block, &rig.batch, x.get(), rig.tape, y.get()) != MDLM_OK ||
        mdlm_block_backward(rig.block, rig.tape, nullptr, dy.get(), dx.get()) != MDLM_OK)
        return 0;
    uint64_t hash = dx.digest(y.digest(1));
    // Backward in place, dx over dy.
    if (mdlm_block_forward(rig.block, &rig.batch, x.get(), rig.tape, y.get()) != MDLM_OK ||
        mdlm_block_backward(rig.block, rig.tape, nullptr, dy.get(), dy.get()) != MDLM_OK)
        return 0;
    hash = dy.digest(y.digest(hash));
    int64_t count = 0;
    mdlm_param_count(rig.block, &count);
    for (int64_t i = 0; i < count; ++i) {
        mdlm_param_desc info = MDLM_PARAM_DESC_INIT;
        void *grad = nullptr;
        if (mdlm_param_info(rig.block, i, &info) != MDLM_OK || mdlm_param_data(rig.block, i, nullptr, &grad) != MDLM_OK)
            return 0;
        hash = fnv(grad, info.grad_bytes, hash);
    }
    return x.guards_are_whole() && y.guards_are_whole() && dy.guards_are_whole() && dx.guards_are_whole() ? hash : 0;
}

// Every element of a line of the cache as beginning, of all four alike and of all four apart.
void same_everywhere(Rig &rig) {
    const size_t e = rig.element();
    const uint64_t good = step(rig, {0, 0, 0, 0});
    REQUIRE_MESSAGE(good != 0, mdlm_last_error());
    for (size_t at = 1; at * e < line; ++at) {
        CAPTURE(at);
        CHECK(step(rig, {at * e, at * e, at * e, at * e}) == good);
        CHECK(step(rig, {at * e, (at + 1) * e % line, (5 * at + 3) * e % line, (7 * at + 2) * e % line}) == good);
    }
}

// Sizes that whole vectors, whole tiles of matrix products and what is left of them all have a part in.
const Settings shared_sizes = {{"num_layers", "2"},
                               {"hidden_size", "72"},
                               {"num_attention_heads", "4"},
                               {"kv_channels", "16"},
                               {"ffn_hidden_size", "136"}};

void make(Rig &rig, mdlm_device_kind device, mdlm_matmul matmul, const Settings &settings) {
    for (const auto &list : {shared_sizes, settings})
        for (auto [key, value] : list) REQUIRE_OK(mdlm_config_set(&rig.config, key, value));
    rig.desc.device = device;
    rig.desc.matmul = matmul;
    rig.desc.num_threads = 2;
    rig.shape.seq_length = rig.batch.seq_length = 37;
    REQUIRE_OK(rig.open());
}

}  // namespace

TEST_CASE("cpu: x, y, dy and dx may begin at any element, and the bits are the same") {
    std::vector<mdlm_matmul> products = {MDLM_MATMUL_OWN};
    if (mdlm::cpu_has_onednn()) products.push_back(MDLM_MATMUL_ONEDNN);
    for (const mdlm_matmul matmul : products)
        for (const char *dtype : {"f32", "bf16"})
            for (const Settings &settings : {Settings{},
                                             {{"attention_backend", "unfused"}, {"recompute_granularity", "full"}},
                                             {{"normalization", "RMSNorm"},
                                              {"qk_layernorm", "1"},
                                              {"activation_func", "swiglu"},
                                              {"recompute_granularity", "selective"}},
                                             {{"batch_first", "1"},
                                              {"final_layernorm", "0"},
                                              {"cpu_offloading", "1"},
                                              {"cpu_offloading_num_layers", "2"}}}) {
                CAPTURE(matmul);
                CAPTURE(std::string(dtype));
                CAPTURE(settings.size());
                Rig rig({{"params_dtype", dtype}});
                make(rig, MDLM_DEVICE_CPU, matmul, settings);
                same_everywhere(rig);
            }
}

TEST_CASE("reference: x, y, dy and dx may begin at any element, and the bits are the same") {
    for (const char *dtype : {"f32", "bf16", "f64"}) {
        CAPTURE(std::string(dtype));
        Rig rig({{"params_dtype", dtype}});
        rig.shape.seq_length = rig.batch.seq_length = 3;
        REQUIRE_OK(rig.open());
        same_everywhere(rig);
    }
}

TEST_CASE("cpu: a borrowed x, parameters and documents may begin where C has them") {
    for (const char *dtype : {"f32", "bf16"}) {
        CAPTURE(std::string(dtype));
        Rig rig({{"params_dtype", dtype}});
        rig.shape.input_storage = MDLM_INPUT_BORROW;
        rig.shape.max_documents = 3;
        rig.shape.micro_batch_size = rig.batch.micro_batch_size = 1;
        make(rig, MDLM_DEVICE_CPU, MDLM_MATMUL_AUTO, {});
        alignas(16) static constexpr int32_t offsets[] = {-1, 0, 9, 20, 37, 0, 9, 20, 37};
        rig.batch.cu_seqlens = offsets + 1, rig.batch.num_documents = 3;
        same_everywhere(rig);
        const uint64_t good = step(rig, {0, 0, 0, 0});
        rig.batch.cu_seqlens = offsets + 5;
        CHECK(step(rig, {0, 0, 0, 0}) == good);
        std::vector<unsigned char> odd(sizeof offsets + 2);
        std::memcpy(odd.data() + 2, offsets + 1, sizeof offsets - 4);
        rig.batch.cu_seqlens = reinterpret_cast<const int32_t *>(odd.data() + 2);
        CHECK_FAILS(rig.forward(), MDLM_ERROR_ARGUMENT, "cu_seqlens");
        CHECK_FAILS(mdlm_tape_set_documents(rig.tape, rig.batch.cu_seqlens, 3), MDLM_ERROR_ARGUMENT, "cu_seqlens");
        rig.batch.cu_seqlens = offsets + 1;
        size_t params = 0, grads = 0;
        void *from = nullptr;
        REQUIRE_OK(mdlm_params_data(rig.block, &from, &params, nullptr, &grads));
        std::vector<unsigned char> values(static_cast<unsigned char *>(from),
                                          static_cast<unsigned char *>(from) + params);
        Buffer own(params + 256), gradients(grads + 256);
        for (size_t off = 0; off < 256; off += 64) {
            CAPTURE(off);
            std::memcpy(static_cast<char *>(own.get()) + off, values.data(), params);
            REQUIRE_OK(mdlm_params_bind(rig.block, static_cast<char *>(own.get()) + off, params,
                                        static_cast<char *>(gradients.get()) + 192 - off, grads));
            CHECK(step(rig, {0, 0, 0, 0}) == good);
        }
    }
}

TEST_CASE("ranks: x, y, dy and dx may begin at any element, and the bits are the same") {
    for (const bool sequence_parallel : {false, true}) {
        CAPTURE(sequence_parallel);
        const std::string wrong = on_threads(2, [&](Rank &r) -> std::string {
            Rig rig({{"params_dtype", "bf16"},
                     {"recompute_granularity", "full"},
                     {"recompute_method", "uniform"},
                     {"recompute_num_layers", "1"}});
            rig.desc.device = MDLM_DEVICE_CPU;
            join_group(rig, r);
            rig.config.sequence_parallel = sequence_parallel;
            rig.config.distribute_saved_activations = sequence_parallel ? 0 : 1;
            EXPECT_OK(rig.open());
            const uint64_t good = step(rig, {0, 0, 0, 0});
            EXPECT(good != 0);
            for (size_t at = 1; at < 8; ++at)
                EXPECT(step(rig, {2 * at, 2 * (at + 1), 2 * (3 * at + 1), 2 * (5 * at + 4)}) == good);
            return "";
        });
        CHECK(wrong == "");
    }
}

TEST_CASE("what is not aligned as an element is, is refused by name, and mdlm_block_io says what is wanted") {
    for (const auto &[dtype, size] : {std::pair<const char *, size_t>{"bf16", 2}, {"f32", 4}, {"f64", 8}}) {
        CAPTURE(std::string(dtype));
        Rig rig({{"params_dtype", dtype}});
        REQUIRE_OK(rig.open());
        REQUIRE_OK(rig.step());
        const uint64_t good = rig.digest();
        mdlm_io io = MDLM_IO_INIT;
        REQUIRE_OK(mdlm_block_io(rig.block, &rig.batch, &io));
        CHECK(io.alignment == size);
        // A caller of the version before has no such field.
        mdlm_io older = MDLM_IO_INIT;
        older.struct_size = offsetof(mdlm_io, alignment);
        older.alignment = 77;
        REQUIRE_OK(mdlm_block_io(rig.block, &rig.batch, &older));
        CHECK(older.bytes == io.bytes);
        CHECK(older.alignment == 77);
        REQUIRE_OK(mdlm_params_zero_grads(rig.block));
        const std::string text = "aligned to " + std::to_string(size);
        for (size_t off = 1; off < size; ++off) {
            const auto at = [&](Buffer &b) { return static_cast<void *>(static_cast<char *>(b.get()) + off); };
            CHECK_FAILS(mdlm_block_forward(rig.block, &rig.batch, at(rig.x), rig.tape, rig.y.get()),
                        MDLM_ERROR_ARGUMENT, "x = ");
            CHECK_FAILS(mdlm_block_forward(rig.block, &rig.batch, rig.x.get(), rig.tape, at(rig.y)),
                        MDLM_ERROR_ARGUMENT, "y = ");
            CHECK_FAILS(mdlm_block_forward(rig.block, &rig.batch, at(rig.x), nullptr, rig.y.get()), MDLM_ERROR_ARGUMENT,
                        text.c_str());
            REQUIRE_OK(rig.forward());
            CHECK_FAILS(mdlm_block_backward(rig.block, rig.tape, nullptr, at(rig.dy), rig.dx.get()),
                        MDLM_ERROR_ARGUMENT, "dy = ");
            CHECK_FAILS(mdlm_block_backward(rig.block, rig.tape, nullptr, rig.dy.get(), at(rig.dx)),
                        MDLM_ERROR_ARGUMENT, "dx = ");
            REQUIRE_OK(mdlm_tape_reset(rig.tape));
        }
        REQUIRE_OK(rig.forward());
        CHECK_OK(rig.backward());
        CHECK(rig.digest() == good);
    }
}

namespace {

// A device whose kernels load 16 bytes at once.
class Wide final : public WrappedDevice {
public:
    using WrappedDevice::WrappedDevice;
    int64_t alignment(mdlm::DType) const override { return 16; }
};

}  // namespace

TEST_CASE("a device that needs more says so and is given it") {
    Rig rig;
    rig.make_buffers();
    mdlm::Engine engine(std::make_unique<Wide>(mdlm::make_reference_device()),
                        mdlm::Comms{mdlm::make_self_comm(), nullptr, 0}, nullptr, nullptr);
    mdlm::Block block(engine, rig.config);
    block.reserve(&rig.shape, nullptr);
    block.params().init(*engine.device, 42);
    CHECK(block.input_io(rig.batch).alignment == 16);
    const auto off = [](Buffer &b, size_t bytes) { return static_cast<void *>(static_cast<char *>(b.get()) + bytes); };
    mdlm::Tape &tape = block.acquire_tape();
    for (const size_t bytes : {4, 8, 12}) {
        CHECK_THROWS_WITH_AS(block.forward(&rig.batch, off(rig.x, bytes), nullptr, rig.y.get()),
                             doctest::Contains("aligned to 16"), mdlm::Error);
        CHECK_THROWS_WITH_AS(block.forward(&rig.batch, rig.x.get(), nullptr, off(rig.y, bytes)),
                             doctest::Contains("y = "), mdlm::Error);
        block.forward(&rig.batch, rig.x.get(), &tape, rig.y.get());
        CHECK_THROWS_WITH_AS(block.backward(&tape, nullptr, off(rig.dy, bytes), rig.dx.get()),
                             doctest::Contains("dy = "), mdlm::Error);
        CHECK_THROWS_WITH_AS(block.backward(&tape, nullptr, rig.dy.get(), off(rig.dx, bytes)),
                             doctest::Contains("dx = "), mdlm::Error);
        block.backward(&tape, nullptr, rig.dy.get(), rig.dx.get());
    }
    block.release_tape(tape);
}

TEST_CASE("collectives for the caller's own data: aligned as an element is") {
    const std::string wrong = on_threads(2, [](Rank &r) -> std::string {
        alignas(64) float own[24], all[24];
        for (size_t off = 0; off < 8; ++off) {
            for (size_t i = 0; i < 4; ++i) own[off + i] = static_cast<float>(i) + 10.0f * static_cast<float>(r.rank);
            EXPECT_OK(
                mdlm_comm_all_reduce(r.comm, own + off, all + 7 - off, 4, MDLM_DTYPE_F32, MDLM_REDUCE_SUM, 60000));
            for (size_t i = 0; i < 4; ++i) EXPECT(all[7 - off + i] == 2.0f * static_cast<float>(i) + 10.0f);
            EXPECT_OK(mdlm_comm_all_gather(r.comm, own + off, all + 7 - off, 4, MDLM_DTYPE_F32, 60000));
            for (size_t i = 0; i < 8; ++i)
                EXPECT(all[7 - off + i] == static_cast<float>(i % 4) + (i < 4 ? 0.0f : 10.0f));
        }
        char *odd = reinterpret_cast<char *>(own) + 2;
        EXPECT_FAILS(mdlm_comm_all_reduce(r.comm, odd, own, 1, MDLM_DTYPE_F32, MDLM_REDUCE_SUM, 60000),
                     MDLM_ERROR_ARGUMENT, "send");
        EXPECT_FAILS(mdlm_comm_all_reduce(r.comm, own, odd, 1, MDLM_DTYPE_F32, MDLM_REDUCE_SUM, 60000),
                     MDLM_ERROR_ARGUMENT, "recv");
        EXPECT_FAILS(mdlm_comm_all_gather(r.comm, odd, own, 1, MDLM_DTYPE_F64, 60000), MDLM_ERROR_ARGUMENT,
                     "aligned to 8");
        EXPECT_FAILS(mdlm_comm_reduce_scatter(r.comm, odd + 1, own, 1, MDLM_DTYPE_BF16, MDLM_REDUCE_SUM, 60000),
                     MDLM_ERROR_ARGUMENT, "aligned to 2");
        return "";
    });
    CHECK(wrong == "");
}

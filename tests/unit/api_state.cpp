// SPDX-License-Identifier: Apache-2.0
// Right calls at the wrong moment: STATE (or BUDGET), nothing changed, and the next good step has the bits it should
// have.
#include <doctest/doctest.h>

#include <string>

#include "support/checks.hpp"
#include "support/rig.hpp"

using namespace mdlm_test;

TEST_CASE("what needs a reservation") {
    Rig rig;
    rig.make_buffers();
    REQUIRE_OK(mdlm_context_create(&rig.desc, &rig.context));
    REQUIRE_OK(mdlm_block_create(rig.context, &rig.config, &rig.block));
    mdlm_memory memory = MDLM_MEMORY_INIT;
    void *data = nullptr;
    CHECK_FAILS(mdlm_block_memory(rig.block, &memory), MDLM_ERROR_STATE, "reserve");
    CHECK_FAILS(mdlm_block_prepare(rig.block, &rig.batch), MDLM_ERROR_STATE, "reserve");
    CHECK_FAILS(mdlm_tape_create(rig.block, &rig.tape), MDLM_ERROR_STATE, "reserve");
    CHECK_FAILS(mdlm_params_init(rig.block, 42), MDLM_ERROR_STATE, "reserve");
    CHECK_FAILS(mdlm_params_zero_grads(rig.block), MDLM_ERROR_STATE, "reserve");
    CHECK_FAILS(mdlm_param_data(rig.block, 0, &data, nullptr), MDLM_ERROR_STATE, "reserve");
    CHECK_FAILS(rig.evaluate(), MDLM_ERROR_STATE, "reserve");
    CHECK(rig.tape == nullptr);
    CHECK(data == nullptr);
    REQUIRE_OK(mdlm_block_reserve(rig.block, &rig.shape, nullptr));
    REQUIRE_OK(mdlm_params_init(rig.block, 42));
    CHECK_FAILS(mdlm_param_set_requires_grad(rig.block, 0, 0), MDLM_ERROR_STATE, "reserve");
    REQUIRE_OK(mdlm_tape_create(rig.block, &rig.tape));
    CHECK_OK(rig.step());
    Rig plain;
    REQUIRE_OK(plain.open());
    REQUIRE_OK(plain.step());
    CHECK(rig.digest() == plain.digest());
}

TEST_CASE("the life of a tape") {
    Rig rig;
    REQUIRE_OK(rig.open());
    REQUIRE_OK(rig.step());
    const uint64_t good = rig.digest();
    mdlm_tape *second = nullptr;
    CHECK_FAILS(mdlm_tape_create(rig.block, &second), MDLM_ERROR_STATE, "tape");
    CHECK(second == nullptr);
    CHECK_FAILS(rig.backward(), MDLM_ERROR_STATE, "tape");  // empty
    REQUIRE_OK(mdlm_params_zero_grads(rig.block));
    REQUIRE_OK(rig.forward());
    CHECK_FAILS(rig.forward(), MDLM_ERROR_STATE, "tape");  // full
    CHECK_FAILS(mdlm_block_reserve(rig.block, &rig.shape, nullptr), MDLM_ERROR_STATE, "tape");
    CHECK_OK(rig.backward());
    CHECK(rig.digest() == good);
    CHECK_FAILS(rig.backward(), MDLM_ERROR_STATE, "tape");  // twice
    CHECK(rig.digest() == good);
    REQUIRE_OK(rig.forward());
    CHECK_OK(mdlm_tape_reset(rig.tape));
    CHECK_OK(mdlm_tape_reset(rig.tape));  // of an empty tape: nothing
    CHECK_FAILS(rig.backward(), MDLM_ERROR_STATE, "tape");
    CHECK_OK(rig.step());
    CHECK(rig.digest() == good);
    REQUIRE_OK(rig.forward());
    mdlm_tape_destroy(std::exchange(rig.tape, nullptr));  // full
    REQUIRE_OK(mdlm_tape_create(rig.block, &rig.tape));
    CHECK_OK(rig.step());
    CHECK(rig.digest() == good);
}

TEST_CASE("a tape belongs to its block") {
    Rig one, two;
    REQUIRE_OK(one.open());
    REQUIRE_OK(two.open());
    REQUIRE_OK(one.step());
    const uint64_t good = one.digest();
    std::swap(one.tape, two.tape);
    CHECK_FAILS(one.forward(), MDLM_ERROR_ARGUMENT, "tape");
    CHECK_FAILS(one.backward(), MDLM_ERROR_ARGUMENT, "tape");
    std::swap(one.tape, two.tape);
    CHECK_OK(one.step());
    CHECK(one.digest() == good);
}

TEST_CASE("evaluation while a tape is in flight") {
    for (const int allowed : {0, 1}) {
        CAPTURE(allowed);
        Rig rig;
        rig.shape.evaluate_in_flight = allowed;
        REQUIRE_OK(rig.open());
        REQUIRE_OK(rig.step());
        const uint64_t good = rig.digest();
        CHECK_OK(rig.evaluate());  // none in flight
        REQUIRE_OK(mdlm_params_zero_grads(rig.block));
        REQUIRE_OK(rig.forward());
        Buffer y(rig.y.size());
        if (allowed != 0) CHECK_OK(mdlm_block_forward(rig.block, &rig.batch, rig.x.get(), nullptr, y.get()));
        else
            CHECK_FAILS(mdlm_block_forward(rig.block, &rig.batch, rig.x.get(), nullptr, y.get()), MDLM_ERROR_STATE,
                        "evaluate_in_flight");
        if (allowed != 0) CHECK(std::memcmp(y.get(), rig.y.get(), y.size()) == 0);
        CHECK_OK(rig.backward());
        CHECK(rig.digest() == good);
    }
}

TEST_CASE("parameters changed between forward and backward") {
    Rig rig;
    REQUIRE_OK(rig.open());
    REQUIRE_OK(rig.step());
    const uint64_t good = rig.digest();
    std::vector<float> bias(16);
    int64_t index = 0;
    REQUIRE_OK(mdlm_param_find(rig.block, "final_layernorm.bias", &index));
    SUBCASE("said so") {
        REQUIRE_OK(rig.forward());
        CHECK_OK(mdlm_params_changed(rig.block));
    }
    SUBCASE("initial values") {
        REQUIRE_OK(rig.forward());
        CHECK_OK(mdlm_params_init(rig.block, 42));
    }
    SUBCASE("written") {
        REQUIRE_OK(rig.forward());
        CHECK_OK(mdlm_param_write(rig.block, index, nullptr, nullptr, nullptr, MDLM_DTYPE_F32, bias.data(),
                                  bias.size() * sizeof(float)));
    }
    CHECK_FAILS(rig.backward(), MDLM_ERROR_STATE, "param");
    CHECK_FAILS(rig.backward(), MDLM_ERROR_STATE, "param");  // still: nothing changed
    CHECK_OK(mdlm_tape_reset(rig.tape));
    CHECK_OK(rig.step());
    CHECK(rig.digest() == good);
}

TEST_CASE("binding memory while a tape is in flight") {
    Rig rig;
    REQUIRE_OK(rig.open());
    REQUIRE_OK(rig.step());
    const uint64_t good = rig.digest();
    REQUIRE_OK(mdlm_params_zero_grads(rig.block));
    REQUIRE_OK(rig.forward());
    std::vector<unsigned char> room(1 << 18);
    void *aligned = room.data() + (256 - reinterpret_cast<uintptr_t>(room.data()) % 256) % 256;
    CHECK_FAILS(mdlm_params_bind(rig.block, aligned, room.size() - 256, nullptr, 0), MDLM_ERROR_STATE, "tape");
    CHECK_FAILS(mdlm_param_bind(rig.block, 0, nullptr, aligned), MDLM_ERROR_STATE, "tape");
    CHECK_OK(rig.backward());
    CHECK(rig.digest() == good);
}

TEST_CASE("a bound buffer that is too small") {
    Rig rig;
    REQUIRE_OK(rig.open());
    std::vector<unsigned char> room(1024);
    void *aligned = room.data() + (256 - reinterpret_cast<uintptr_t>(room.data()) % 256) % 256;
    CHECK_FAILS(mdlm_params_bind(rig.block, aligned, 256, nullptr, 0), MDLM_ERROR_ARGUMENT, "params");
    CHECK_FAILS(mdlm_params_bind(rig.block, nullptr, 0, aligned, 256), MDLM_ERROR_ARGUMENT, "grads");
    CHECK_OK(rig.step());
}

TEST_CASE("a budget of the peak is taken, of one byte less refused, and the reservation stays") {
    Rig rig;
    REQUIRE_OK(rig.open());
    REQUIRE_OK(rig.step());
    const uint64_t good = rig.digest();
    mdlm_memory memory = MDLM_MEMORY_INIT, after = MDLM_MEMORY_INIT;
    REQUIRE_OK(mdlm_block_memory(rig.block, &memory));
    mdlm_tape_destroy(std::exchange(rig.tape, nullptr));
    mdlm_shape shape = rig.shape;
    shape.max_bytes = memory.peak_bytes - 1;
    CHECK_FAILS(mdlm_block_reserve(rig.block, &shape, nullptr), MDLM_ERROR_BUDGET,
                std::to_string(memory.peak_bytes).c_str());
    REQUIRE_OK(mdlm_block_memory(rig.block, &after));
    CHECK(after.peak_bytes == memory.peak_bytes);
    REQUIRE_OK(mdlm_tape_create(rig.block, &rig.tape));
    CHECK_OK(rig.step());
    CHECK(rig.digest() == good);
    mdlm_tape_destroy(std::exchange(rig.tape, nullptr));
    shape.max_bytes = memory.peak_bytes;
    CHECK_OK(mdlm_block_reserve(rig.block, &shape, nullptr));
    REQUIRE_OK(mdlm_tape_create(rig.block, &rig.tape));
    CHECK_OK(rig.step());
    CHECK(rig.digest() == good);
}

TEST_CASE("a plan for another block is refused") {
    Rig rig, other{{"num_layers", "3"}};
    REQUIRE_OK(rig.open());
    mdlm_tape_destroy(std::exchange(rig.tape, nullptr));
    REQUIRE_OK(mdlm_plan_create(&other.config, &other.shape, nullptr, &other.plan));
    CHECK_FAILS(mdlm_block_reserve(rig.block, &rig.shape, other.plan), MDLM_ERROR_CONFIG, "plan");
    REQUIRE_OK(mdlm_tape_create(rig.block, &rig.tape));
    CHECK_OK(rig.step());
}

TEST_CASE("no gradient of the input") {
    Rig rig;
    rig.shape.input_requires_grad = 0;
    REQUIRE_OK(rig.open());
    CHECK_OK(rig.step());
}

namespace {

struct Ready {
    Rig *rig;
    int64_t stop_at;
    mdlm_status inner = MDLM_OK;
    std::vector<int64_t> layers;
};

}  // namespace

TEST_CASE("grad_ready that fails") {
    for (const int64_t stop_at : {2, 1, 0}) {
        CAPTURE(stop_at);
        Rig rig;
        REQUIRE_OK(rig.open());
        REQUIRE_OK(rig.step());
        const uint64_t good = rig.digest();
        Ready ready{&rig, stop_at, MDLM_OK, {}};
        mdlm_backward_options options = MDLM_BACKWARD_OPTIONS_INIT;
        options.payload = &ready;
        options.grad_ready = [](void *payload, int64_t layer) -> mdlm_status {
            auto &r = *static_cast<Ready *>(payload);
            r.layers.push_back(layer);
            if (layer != r.stop_at) return MDLM_OK;
            mdlm_set_last_error("the optimizer of the test said no");
            return MDLM_ERROR_DEVICE;
        };
        REQUIRE_OK(mdlm_params_zero_grads(rig.block));
        REQUIRE_OK(rig.forward());
        CHECK_FAILS(rig.backward(&options), MDLM_ERROR_CALLBACK, "grad_ready");
        CHECK(std::strstr(mdlm_last_error(), "the optimizer of the test said no") != nullptr);
        CHECK(ready.layers.size() == static_cast<size_t>(3 - stop_at));
        // The tape is spent and the gradients are dirty until they are zeroed or overwritten.
        CHECK_FAILS(rig.backward(), MDLM_ERROR_STATE, "tape");
        REQUIRE_OK(rig.forward());
        CHECK_FAILS(rig.backward(), MDLM_ERROR_STATE, "grad");
        options = MDLM_BACKWARD_OPTIONS_INIT;
        options.overwrite_grads = 1;
        CHECK_OK(rig.backward(&options));
        CHECK(rig.digest() == good);
        CHECK_OK(rig.step());
        CHECK(rig.digest() == good);
    }
}

TEST_CASE("grad_ready may not call into its context") {
    Rig rig;
    REQUIRE_OK(rig.open());
    REQUIRE_OK(rig.step());
    const uint64_t good = rig.digest();
    Ready ready{&rig, -1, MDLM_OK, {}};
    mdlm_backward_options options = MDLM_BACKWARD_OPTIONS_INIT;
    options.payload = &ready;
    options.grad_ready = [](void *payload, int64_t layer) -> mdlm_status {
        auto &r = *static_cast<Ready *>(payload);
        r.layers.push_back(layer);
        r.inner = mdlm_params_zero_grads(r.rig->block);
        return MDLM_OK;
    };
    REQUIRE_OK(mdlm_params_zero_grads(rig.block));
    REQUIRE_OK(rig.forward());
    CHECK_OK(rig.backward(&options));
    CHECK(ready.inner == MDLM_ERROR_BUSY);
    CHECK(ready.layers == std::vector<int64_t>{2, 1, 0});
    CHECK(rig.digest() == good);
}

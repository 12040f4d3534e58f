// SPDX-License-Identifier: Apache-2.0
// Memory of the caller for parameters and gradients that is bound before the block is reserved.
#include "params_case.hpp"

using namespace mdlm_test;

TEST_CASE("bound before reserve: only what is not bound is allocated, zeroed") {
    const uint64_t good = bits_of({});
    Rig rig;
    create_block(rig);
    const Flat flat(rig.block);
    Buffer own(flat.params_bytes), grads(flat.grads_bytes);
    CHECK_FAILS(mdlm_params_init(rig.block, 42), MDLM_ERROR_STATE, "reserve");
    CHECK_FAILS(mdlm_params_zero_grads(rig.block), MDLM_ERROR_STATE, "reserve");
    REQUIRE_OK(mdlm_params_bind(rig.block, own.get(), own.size(), nullptr, 0));
    CHECK_OK(mdlm_params_init(rig.block, 42));
    CHECK_FAILS(mdlm_params_zero_grads(rig.block), MDLM_ERROR_STATE, "gradient");
    SUBCASE("parameters") {
        reserve_block(rig);
        CHECK(stats_of(rig).gradient_bytes == flat.grads_bytes);
        CHECK(stats_of(rig).parameter_bytes < flat.params_bytes);
        // The library's gradients are 0 at first: no mdlm_params_zero_grads.
        CHECK_OK(rig.forward());
        CHECK_OK(rig.backward());
        CHECK(rig.digest() == good);
    }
    SUBCASE("both") {
        std::memset(grads.get(), 0x7f, grads.size());
        REQUIRE_OK(mdlm_params_bind(rig.block, nullptr, 0, grads.get(), grads.size()));
        CHECK_OK(mdlm_params_zero_grads(rig.block));
        CHECK(Flat(rig.block).grads == grads.get());
        reserve_block(rig);
        CHECK(stats_of(rig).gradient_bytes == 0);
        CHECK_OK(rig.forward());
        CHECK_OK(rig.backward());
        CHECK(rig.digest() == good);
    }
    SUBCASE("both, and not zeroed: gradients are added to what is there") {
        std::memset(grads.get(), 0, grads.size());
        static_cast<float *>(grads.get())[0] = 1e6f;
        REQUIRE_OK(mdlm_params_bind(rig.block, nullptr, 0, grads.get(), grads.size()));
        reserve_block(rig);
        CHECK_OK(rig.forward());
        CHECK_OK(rig.backward());
        CHECK(rig.digest() != good);
        CHECK(static_cast<float *>(grads.get())[0] > 9e5f);
        mdlm_backward_options over = MDLM_BACKWARD_OPTIONS_INIT;
        over.overwrite_grads = 1;
        CHECK_OK(rig.forward());
        CHECK_OK(rig.backward(&over));
        CHECK(rig.digest() == good);
    }
}

TEST_CASE("freezing and bound gradients") {
    Rig rig;
    create_block(rig);
    const Flat all(rig.block);
    REQUIRE_OK(mdlm_param_set_requires_grad(rig.block, 0, 0));
    const Flat some(rig.block);
    CHECK(some.params_bytes == all.params_bytes);
    CHECK(some.grads_bytes == all.grads_bytes - whole(info(rig.block, 0).bytes));
    Buffer own(some.params_bytes), grads(some.grads_bytes), extra(256);
    REQUIRE_OK(mdlm_params_bind(rig.block, own.get(), own.size(), nullptr, 0));
    CHECK_OK(mdlm_param_set_requires_grad(rig.block, 1, 0));  // parameters do not move
    CHECK_OK(mdlm_param_set_requires_grad(rig.block, 1, 1));
    CHECK_FAILS(mdlm_param_bind(rig.block, 0, nullptr, extra.get()), MDLM_ERROR_STATE, "frozen");
    REQUIRE_OK(mdlm_params_bind(rig.block, nullptr, 0, grads.get(), grads.size()));
    CHECK_FAILS(mdlm_param_set_requires_grad(rig.block, 0, 1), MDLM_ERROR_STATE, "bound");
    CHECK_FAILS(mdlm_param_set_requires_grad(rig.block, 1, 0), MDLM_ERROR_STATE, "bound");
    CHECK(Flat(rig.block).grads == grads.get());
    void *grad = &rig;
    REQUIRE_OK(mdlm_param_data(rig.block, 0, nullptr, &grad));
    CHECK(grad == nullptr);
    reserve_block(rig);
    REQUIRE_OK(mdlm_params_init(rig.block, 42));
    CHECK_OK(rig.step());
    CHECK(stats_of(rig).gradient_bytes == 0);
}

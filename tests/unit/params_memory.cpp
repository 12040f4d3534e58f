// SPDX-License-Identifier: Apache-2.0
// The flat buffers of parameters and gradients: their exact sizes, what is refused, and the caller's memory instead of
// the library's, with what the statistics say of it.
#include <string>

#include "params_case.hpp"

using namespace mdlm_test;

TEST_CASE("flat buffers: their sizes are known from create on, and are exactly what bind needs") {
    for (const auto &settings : {std::initializer_list<std::pair<const char *, const char *>>{},
                                 {{"hidden_size", "12"}, {"params_dtype", "bf16"}},
                                 {{"hidden_size", "12"}, {"final_layernorm", "0"}, {"ffn_hidden_size", "7"}},
                                 {{"params_dtype", "f64"}}})
        for (const int frozen : {0, 1, 2}) {
            CAPTURE(settings.size());
            CAPTURE(frozen);  // none, the last of all, all
            Rig rig(settings);
            create_block(rig);
            const int64_t count = count_of(rig.block);
            for (int64_t i = 0; i < count; ++i)
                if (frozen == 2 || (frozen == 1 && i == count - 1))
                    REQUIRE_OK(mdlm_param_set_requires_grad(rig.block, i, 0));
            size_t params = 0, grads = 0;
            for (int64_t i = 0; i < count; ++i) {
                const mdlm_param_desc p = info(rig.block, i);
                const size_t elements = static_cast<size_t>(p.local_shape[0] * (p.ndim == 2 ? p.local_shape[1] : 1));
                CHECK(p.offset_bytes == params);
                params += whole(elements * rig.element());
                if (p.requires_grad == 0) continue;
                CHECK(p.grad_offset_bytes == grads);
                grads += whole(elements * (rig.element() == 8 ? 8 : 4));
            }
            const Flat before(rig.block);
            CHECK(before.params == nullptr);
            CHECK(before.grads == nullptr);
            CHECK(before.params_bytes == params);
            CHECK(before.grads_bytes == grads);
            CHECK_OK(mdlm_params_data(rig.block, nullptr, nullptr, nullptr, nullptr));

            Buffer own(params + 4096), gradients(grads + 4096);
            CHECK_FAILS(mdlm_params_bind(rig.block, own.get(), params - 1, nullptr, 0), MDLM_ERROR_ARGUMENT,
                        std::to_string(params).c_str());
            if (grads > 0)
                CHECK_FAILS(mdlm_params_bind(rig.block, nullptr, 0, gradients.get(), grads - 1), MDLM_ERROR_ARGUMENT,
                            std::to_string(grads).c_str());
            CHECK(Flat(rig.block).params == nullptr);
            for (const size_t more : {size_t{0}, size_t{1}, size_t{4096}}) {
                CHECK_OK(mdlm_params_bind(rig.block, own.get(), params + more, gradients.get(), grads + more));
                const Flat after(rig.block);
                CHECK(after.params == own.get());
                CHECK(after.grads == (grads > 0 ? gradients.get() : nullptr));
                CHECK(after.params_bytes == params);
                CHECK(after.grads_bytes == grads);
            }
            reserve_block(rig);
            CHECK_OK(mdlm_params_init(rig.block, 42));
            CHECK_OK(rig.step());
            const Flat reserved(rig.block);
            CHECK(reserved.params == own.get());
            CHECK(reserved.params_bytes == params);
            CHECK(stats_of(rig).gradient_bytes == 0);
        }
}

TEST_CASE("flat buffers: what is refused, and nothing has changed") {
    Rig rig;
    REQUIRE_OK(rig.open());
    REQUIRE_OK(rig.step());
    const uint64_t good = rig.digest();
    const Flat flat(rig.block);
    Buffer own(2 * flat.params_bytes + 4096), grads(flat.grads_bytes + 4096);
    for (const size_t off : {1, 4, 8, 16, 32, 63})
        CHECK_FAILS(mdlm_params_bind(rig.block, at(own, off), flat.params_bytes, grads.get(), flat.grads_bytes),
                    MDLM_ERROR_ARGUMENT, "64");
    CHECK_FAILS(mdlm_params_bind(rig.block, own.get(), flat.params_bytes, at(grads, 32), flat.grads_bytes),
                MDLM_ERROR_ARGUMENT, "grads");
    CHECK_FAILS(mdlm_params_bind(rig.block, own.get(), 0, nullptr, 0), MDLM_ERROR_ARGUMENT, "params: 0 bytes");
    CHECK_FAILS(mdlm_params_bind(rig.block, own.get(), SIZE_MAX, nullptr, 1), MDLM_ERROR_ARGUMENT, "grads is NULL");
    // The same buffer twice, and one that begins within the other.
    CHECK_FAILS(mdlm_params_bind(rig.block, own.get(), flat.params_bytes, own.get(), flat.grads_bytes),
                MDLM_ERROR_ARGUMENT, "overlap");
    CHECK_FAILS(
        mdlm_params_bind(rig.block, own.get(), flat.params_bytes, at(own, flat.params_bytes - 64), flat.grads_bytes),
        MDLM_ERROR_ARGUMENT, "overlap");
    CHECK_FAILS(mdlm_param_bind(rig.block, 0, own.get(), own.get()), MDLM_ERROR_ARGUMENT, "overlap");
    CHECK(Flat(rig.block).params == flat.params);
    CHECK(Flat(rig.block).grads == flat.grads);
    // Between forward and backward.
    REQUIRE_OK(mdlm_params_zero_grads(rig.block));
    REQUIRE_OK(rig.forward());
    CHECK_FAILS(mdlm_params_bind(rig.block, own.get(), flat.params_bytes, nullptr, 0), MDLM_ERROR_STATE,
                "between forward and backward");
    CHECK_FAILS(mdlm_params_bind(rig.block, nullptr, 0, grads.get(), flat.grads_bytes), MDLM_ERROR_STATE,
                "between forward and backward");
    CHECK_FAILS(mdlm_param_bind(rig.block, 0, own.get(), nullptr), MDLM_ERROR_STATE, "between forward and backward");
    CHECK(Flat(rig.block).params == flat.params);
    CHECK_OK(rig.backward());
    CHECK(rig.digest() == good);
    // 64 is enough; one right behind the other is apart.
    std::memcpy(at(own, 64), flat.params, flat.params_bytes);
    CHECK_OK(
        mdlm_params_bind(rig.block, at(own, 64), flat.params_bytes, at(own, 64 + flat.params_bytes), flat.grads_bytes));
    CHECK_OK(rig.step());
    CHECK(rig.digest() == good);
}

TEST_CASE("binding after reserve gives the library's own buffers back, and all figures say so") {
    for (const mdlm_device_kind device : {MDLM_DEVICE_REFERENCE, MDLM_DEVICE_CPU}) {
        CAPTURE(device);
        Counted counted;
        const mdlm_allocator allocator = counted.table();
        Rig rig;
        rig.desc.device = device;
        rig.desc.device_allocator = &allocator;
        REQUIRE_OK(rig.open());
        REQUIRE_OK(rig.step());
        const uint64_t good = rig.digest();
        const Flat flat(rig.block);
        REQUIRE(flat.params != nullptr);
        const mdlm_context_stats first = stats_of(rig);
        const uint64_t tables = first.parameter_bytes - flat.params_bytes;
        CHECK(tables > 0);  // rotary
        CHECK(first.gradient_bytes == flat.grads_bytes);
        CHECK(memory_of(rig).parameter_bytes == first.parameter_bytes);
        CHECK(memory_of(rig).gradient_bytes == first.gradient_bytes);
        const int64_t alive = counted.alive, calls = counted.calls;

        // What the library owns, after the own ones of which were bound.
        const auto expect = [&](bool params, bool grads) {
            const uint64_t of_params = tables + (params ? flat.params_bytes : 0),
                           of_grads = grads ? flat.grads_bytes : 0;
            CHECK(stats_of(rig).parameter_bytes == of_params);
            CHECK(stats_of(rig).gradient_bytes == of_grads);
            CHECK(memory_of(rig).parameter_bytes == of_params);
            CHECK(memory_of(rig).gradient_bytes == of_grads);
            CHECK(counted.alive ==
                  alive - static_cast<int64_t>((params ? 0 : flat.params_bytes) + (grads ? 0 : flat.grads_bytes)));
            CHECK(counted.calls == calls);
            CHECK(stats_of(rig).allocations == first.allocations);
        };
        Buffer one(flat.params_bytes), two(flat.params_bytes), grads(flat.grads_bytes), more(flat.grads_bytes);
        std::memcpy(one.get(), flat.params, flat.params_bytes);
        std::memcpy(two.get(), flat.params, flat.params_bytes);
        SUBCASE("flat, parameters first, then to and fro") {
            // Where they are.
            CHECK_OK(mdlm_params_bind(rig.block, flat.params, flat.params_bytes, flat.grads, flat.grads_bytes));
            expect(true, true);
            CHECK_OK(mdlm_params_bind(rig.block, one.get(), one.size(), nullptr, 0));
            expect(false, true);
            CHECK_OK(rig.step());
            CHECK(rig.digest() == good);
            for (Buffer *b : {&two, &one, &one, &two}) {
                CHECK_OK(mdlm_params_bind(rig.block, b->get(), b->size(), b == &one ? more.get() : grads.get(),
                                          grads.size()));
                expect(false, false);
                CHECK_OK(rig.step());
                CHECK(rig.digest() == good);
            }
        }
        SUBCASE("gradients first") {
            CHECK_OK(mdlm_params_bind(rig.block, nullptr, 0, grads.get(), grads.size()));
            expect(true, false);
            CHECK_OK(rig.step());
            CHECK(rig.digest() == good);
        }
        SUBCASE("one by one: the last one frees") {
            const int64_t count = count_of(rig.block);
            for (int64_t i = 0; i < count; ++i) {
                const mdlm_param_desc p = info(rig.block, i);
                expect(true, true);
                CHECK_OK(mdlm_param_bind(rig.block, i, at(one, p.offset_bytes), at(grads, p.grad_offset_bytes)));
                // In two buffers, and then all in one again.
                CHECK((Flat(rig.block).params == nullptr) == (i + 1 < count));
            }
            expect(false, false);
            CHECK(Flat(rig.block).params == one.get());
            CHECK(Flat(rig.block).grads == grads.get());
            CHECK_OK(mdlm_param_bind(rig.block, 0, two.get(), nullptr));
            CHECK(Flat(rig.block).params == nullptr);
            CHECK(Flat(rig.block).grads == grads.get());
            CHECK_OK(rig.step());
            CHECK(rig.digest() == good);
        }
        // Reserving again makes no new ones.
        const mdlm_context_stats bound = stats_of(rig);
        mdlm_tape_destroy(std::exchange(rig.tape, nullptr));
        reserve_block(rig);
        CHECK(stats_of(rig).parameter_bytes == bound.parameter_bytes);
        CHECK(stats_of(rig).gradient_bytes == bound.gradient_bytes);
        CHECK_OK(rig.step());
        CHECK(rig.digest() == good);
        rig.close();
        CHECK(counted.alive == 0);
    }
}

// SPDX-License-Identifier: Apache-2.0
// What a step means, apart from plans: frozen parameters, smaller shapes in a larger reservation, micro-batches that
// add up, batch_first.
#include <doctest/doctest.h>

#include <cmath>
#include <cstring>
#include <map>
#include <string>

#include "support/checks.hpp"
#include "support/rig.hpp"

using mdlm_test::Rig;

namespace {

std::string bytes_of(mdlm_test::Buffer &b) { return {static_cast<const char *>(b.get()), b.size()}; }

// Bytes of every gradient by name; frozen parameters have none.
std::map<std::string, std::string> gradients(const Rig &rig) {
    std::map<std::string, std::string> all;
    int64_t count = 0;
    REQUIRE_OK(mdlm_param_count(rig.block, &count));
    for (int64_t i = 0; i < count; ++i) {
        mdlm_param_desc info = MDLM_PARAM_DESC_INIT;
        void *grad = nullptr;
        REQUIRE_OK(mdlm_param_info(rig.block, i, &info));
        REQUIRE_OK(mdlm_param_data(rig.block, i, nullptr, &grad));
        if (grad != nullptr) all[info.name] = std::string(static_cast<const char *>(grad), info.grad_bytes);
    }
    return all;
}

// Opens a rig with the parameters frozen whose names `frozen` says.
template <class F>
void open(Rig &rig, F frozen) {
    rig.make_buffers();
    REQUIRE_OK(mdlm_context_create(&rig.desc, &rig.context));
    REQUIRE_OK(mdlm_block_create(rig.context, &rig.config, &rig.block));
    int64_t count = 0;
    REQUIRE_OK(mdlm_param_count(rig.block, &count));
    for (int64_t i = 0; i < count; ++i) {
        mdlm_param_desc info = MDLM_PARAM_DESC_INIT;
        REQUIRE_OK(mdlm_param_info(rig.block, i, &info));
        REQUIRE_OK(mdlm_param_set_requires_grad(rig.block, i, !frozen(std::string(info.name))));
    }
    REQUIRE_OK(mdlm_block_reserve(rig.block, &rig.shape, nullptr));
    REQUIRE_OK(mdlm_params_init(rig.block, 42));
    REQUIRE_OK(mdlm_tape_create(rig.block, &rig.tape));
}

bool has(const std::string &name, const char *part) { return name.find(part) != std::string::npos; }

}  // namespace

TEST_CASE("freezing some parameters changes nothing for the others, whatever is replayed") {
    using Frozen = bool (*)(const std::string &);
    const std::pair<const char *, Frozen> cases[] = {
        {"first layer", [](const std::string &n) { return has(n, "layers.0."); }},
        {"first two layers", [](const std::string &n) { return has(n, "layers.0.") || has(n, "layers.1."); }},
        {"last layer and final norm", [](const std::string &n) { return has(n, "layers.2.") || has(n, "final"); }},
        {"all weights of linears", [](const std::string &n) { return has(n, "linear") && has(n, "weight"); }},
        {"all but q_layernorm", [](const std::string &n) { return !has(n, "q_layernorm"); }},
        {"all but one bias", [](const std::string &n) { return n != "layers.1.mlp.linear_fc1.bias"; }},
        {"all norms", [](const std::string &n) { return has(n, "norm"); }},
    };
    const std::initializer_list<std::pair<const char *, const char *>> none = {{"num_layers", "3"},
                                                                               {"qk_layernorm", "true"}},
                                                                       full = {{"num_layers", "3"},
                                                                               {"qk_layernorm", "true"},
                                                                               {"recompute_granularity", "full"}},
                                                                       unit = {{"num_layers", "3"},
                                                                               {"qk_layernorm", "true"},
                                                                               {"recompute_granularity", "full"},
                                                                               {"recompute_method", "uniform"},
                                                                               {"recompute_num_layers", "3"}};
    Rig whole(none);
    REQUIRE_OK(whole.open());
    REQUIRE_OK(whole.step());
    const auto all = gradients(whole);
    for (const auto &of : cases)
        for (const auto &settings : {none, full, unit})
            for (const int32_t input_requires_grad : {1, 0}) {
                const Frozen frozen = of.second;
                CAPTURE(std::string(of.first));
                CAPTURE(settings.size());
                CAPTURE(input_requires_grad);
                Rig rig(settings);
                rig.shape.input_requires_grad = input_requires_grad;
                open(rig, frozen);
                REQUIRE_OK(rig.step());
                if (input_requires_grad != 0) CHECK(bytes_of(rig.dx) == bytes_of(whole.dx));
                const auto some = gradients(rig);
                size_t expected = 0;
                for (const auto &gradient : all) {
                    const std::string &param = gradient.first, &bytes = gradient.second;
                    if (frozen(param)) {
                        CHECK(some.count(param) == 0);
                        continue;
                    }
                    ++expected;
                    CHECK_MESSAGE(some.at(param) == bytes, param);
                    CHECK(bytes.find_first_not_of('\0') != std::string::npos);
                }
                CHECK(some.size() == expected);
                CHECK(expected > 0);
            }
}

TEST_CASE("with everything frozen and no dx wanted a tape keeps nothing, and backward does nothing") {
    Rig rig({{"num_layers", "3"}});
    rig.shape.input_requires_grad = 0;
    open(rig, [](const std::string &) { return true; });
    REQUIRE_OK(rig.step());
    mdlm_tape_stats stats = MDLM_TAPE_STATS_INIT;
    REQUIRE_OK(mdlm_tape_get_stats(rig.tape, &stats));
    CHECK(stats.saved_bytes == 0);
    CHECK(stats.backward_ops + stats.replayed_ops == 0);
    mdlm_memory m = MDLM_MEMORY_INIT;
    REQUIRE_OK(mdlm_block_memory(rig.block, &m));
    CHECK(m.gradient_bytes == 0);
}

TEST_CASE("a smaller shape in a larger reservation gives the bits of a reservation that fits") {
    for (const char *granularity : {"none", "selective", "full"})
        for (const char *backend : {"fused", "unfused"})
            for (const mdlm_device_kind device : {MDLM_DEVICE_REFERENCE, MDLM_DEVICE_CPU}) {
                CAPTURE(std::string(granularity));
                const auto settings = {std::pair{"recompute_granularity", granularity}, {"attention_backend", backend}};
                Rig fits(settings), large(settings);
                fits.desc.device = large.desc.device = device;
                large.shape.seq_length = 29;
                large.shape.micro_batch_size = 5;
                large.shape.max_tokens = 77;
                REQUIRE_OK(fits.open());
                REQUIRE_OK(large.open());
                REQUIRE_OK(fits.step());
                std::memcpy(large.x.get(), fits.x.get(), fits.x.size());
                std::memcpy(large.dy.get(), fits.dy.get(), fits.dy.size());
                REQUIRE_OK(large.step());
                CHECK(std::memcmp(large.y.get(), fits.y.get(), fits.y.size()) == 0);
                CHECK(std::memcmp(large.dx.get(), fits.dx.get(), fits.dx.size()) == 0);
                CHECK(gradients(large) == gradients(fits));
            }
}

TEST_CASE("gradients of micro-batches add up, and overwrite_grads begins anew") {
    Rig rig({{"params_dtype", "f64"}});
    REQUIRE_OK(rig.open());
    mdlm_backward_options over = MDLM_BACKWARD_OPTIONS_INIT;
    over.overwrite_grads = 1;
    const auto run = [&](uint32_t micro, const mdlm_backward_options *options) {
        rig.batch.micro_batch_index = micro;  // other dropout masks
        REQUIRE_OK(rig.forward());
        REQUIRE_OK(rig.backward(options));
        return gradients(rig);
    };
    const auto first = run(0, &over), second = run(1, &over);
    CHECK(first != second);
    run(0, &over);
    const auto sum = run(1, nullptr);
    for (const auto &[name, bytes] : sum)
        for (size_t at = 0; at < bytes.size(); at += 8) {
            double a = 0, b = 0, c = 0;
            std::memcpy(&a, first.at(name).data() + at, 8), std::memcpy(&b, second.at(name).data() + at, 8),
                std::memcpy(&c, bytes.data() + at, 8);
            CHECK(c == doctest::Approx(a + b).epsilon(1e-12));
        }
}

TEST_CASE("batch_first moves data and nothing else: the same dropout, the same numbers") {
    Rig a({{"hidden_dropout", "0.3"}, {"attention_dropout", "0.2"}, {"params_dtype", "f64"}});
    Rig b({{"hidden_dropout", "0.3"}, {"attention_dropout", "0.2"}, {"params_dtype", "f64"}, {"batch_first", "true"}});
    REQUIRE_OK(a.open());
    REQUIRE_OK(b.open());
    const int64_t s = 8, n = 2, h = 16;
    const auto moved = [&](const void *from, void *to) {
        for (int64_t i = 0; i < s; ++i)
            for (int64_t j = 0; j < n; ++j)
                std::memcpy(static_cast<double *>(to) + (j * s + i) * h,
                            static_cast<const double *>(from) + (i * n + j) * h, static_cast<size_t>(h) * 8);
    };
    moved(a.x.get(), b.x.get());
    moved(a.dy.get(), b.dy.get());
    REQUIRE_OK(a.step());
    REQUIRE_OK(b.step());
    mdlm_test::Buffer expected(a.y.size());
    moved(a.y.get(), expected.get());
    CHECK(bytes_of(expected) == bytes_of(b.y));
    moved(a.dx.get(), expected.get());
    CHECK(bytes_of(expected) == bytes_of(b.dx));
}

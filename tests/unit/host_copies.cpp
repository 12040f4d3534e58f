// SPDX-License-Identifier: Apache-2.0
// Two copies of the library in one process, as with a program that links the archive and loads a plugin that links the
// shared library: they share nothing, and give the same bits at the same time.
#include <doctest/doctest.h>

#include <dlfcn.h>

#include <thread>

#include "support/checks.hpp"
#include "support/rig.hpp"

using namespace mdlm_test;

namespace {

// clang-format off
#define FUNCTIONS(X) \
    X(mdlm_last_error) \
    X(mdlm_config_set) \
    X(mdlm_context_create) \
    X(mdlm_context_destroy) \
    X(mdlm_block_create) \
    X(mdlm_block_destroy) \
    X(mdlm_block_reserve) \
    X(mdlm_params_init) \
    X(mdlm_tape_create) \
    X(mdlm_tape_destroy) \
    X(mdlm_block_forward) \
    X(mdlm_block_backward) \
    X(mdlm_params_zero_grads)
// clang-format on

struct Copy {
    void *library = nullptr;
    std::string missing;
#define DECLARE(name) decltype(&::name) name = nullptr;
    FUNCTIONS(DECLARE)
#undef DECLARE
    Copy() : library(dlopen(MDLM_SHARED_LIBRARY, RTLD_NOW | RTLD_LOCAL)) {
        if (library == nullptr) missing = dlerror();
        if (library == nullptr) return;
#define LOAD(name)                                                                                                     \
    name = reinterpret_cast<decltype(name)>(dlsym(library, #name));                                                    \
    if (name == nullptr || name == &::name) missing += #name " ";
        FUNCTIONS(LOAD)
#undef LOAD
    }
    ~Copy() {
        if (library != nullptr) dlclose(library);
    }
};

// y and dx of some steps of the rig's settings on this copy; "" or what is wrong.
std::string steps(const Copy &c, Rig &rig) {
    rig.make_buffers();
    mdlm_context *context = nullptr;
    mdlm_block *block = nullptr;
    mdlm_tape *tape = nullptr;
    mdlm_status s = c.mdlm_context_create(&rig.desc, &context);
    if (s == MDLM_OK) s = c.mdlm_block_create(context, &rig.config, &block);
    if (s == MDLM_OK) s = c.mdlm_block_reserve(block, &rig.shape, nullptr);
    if (s == MDLM_OK) s = c.mdlm_params_init(block, 42);
    if (s == MDLM_OK) s = c.mdlm_tape_create(block, &tape);
    for (int i = 0; i < 20 && s == MDLM_OK; ++i) {
        s = c.mdlm_params_zero_grads(block);
        if (s == MDLM_OK) s = c.mdlm_block_forward(block, &rig.batch, rig.x.get(), tape, rig.y.get());
        if (s == MDLM_OK) s = c.mdlm_block_backward(block, tape, nullptr, rig.dy.get(), rig.dx.get());
    }
    c.mdlm_tape_destroy(tape), c.mdlm_block_destroy(block), c.mdlm_context_destroy(context);
    return s == MDLM_OK ? "" : c.mdlm_last_error();
}

}  // namespace

TEST_CASE("copies: the archive and the shared library in one process") {
    Copy loaded;
    REQUIRE(loaded.missing == "");
    for (const int32_t threads : {1, 3}) {
        Rig ours, theirs;
        for (Rig *rig : {&ours, &theirs}) rig->desc.device = MDLM_DEVICE_CPU, rig->desc.num_threads = threads;
        std::string wrong;
        std::thread other([&] { wrong = steps(loaded, theirs); });
        REQUIRE_OK(ours.open());
        mdlm_status status = MDLM_OK;
        for (int i = 0; i < 20 && status == MDLM_OK; ++i) status = ours.step();
        other.join();
        CHECK(status == MDLM_OK);
        CHECK(wrong == "");
        CHECK(fnv(ours.y.get(), ours.y.size()) == fnv(theirs.y.get(), theirs.y.size()));
        CHECK(fnv(ours.dx.get(), ours.dx.size()) == fnv(theirs.dx.get(), theirs.dx.size()));
    }
    // Each has its own error line.
    mdlm_set_last_error("of the archive");
    mdlm_config config = MDLM_CONFIG_INIT;
    CHECK(loaded.mdlm_config_set(&config, "no_such_key", "1") == MDLM_ERROR_NOT_FOUND);
    CHECK(std::string(mdlm_last_error()) == "of the archive");
    CHECK(wrong_with(loaded.mdlm_last_error(), "no_such_key") == "");
}

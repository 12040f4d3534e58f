// SPDX-License-Identifier: Apache-2.0
// The rules that every struct and every status obeys at the boundary.
#include <cstddef>
#include <cstring>
#include <new>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include <doctest/doctest.h>

#include "api/guard.hpp"
#include "base/structs.hpp"
#include "mdlm/mdlm.h"

namespace {

// A config of an older or newer caller: size bytes, exactly, so that a sanitizer sees a step beyond.
struct Sized {
    std::vector<unsigned char> exact;
    explicit Sized(size_t size) : exact(size) {}
    mdlm_config *config() { return reinterpret_cast<mdlm_config *>(exact.data()); }
};

}  // namespace

TEST_CASE("structs: a smaller struct is never overrun and its missing fields are defaults") {
    const size_t size = offsetof(mdlm_config, recompute_granularity) / 8 * 8;
    Sized older(size);
    REQUIRE(mdlm_config_init(older.config(), size) == MDLM_OK);
    CHECK(older.config()->struct_size == size);
    REQUIRE(mdlm_config_set(older.config(), "num_layers", "3") == MDLM_OK);
    REQUIRE(mdlm_config_set(older.config(), "hidden_size", "32") == MDLM_OK);
    REQUIRE(mdlm_config_set(older.config(), "num_attention_heads", "4") == MDLM_OK);
    CHECK(mdlm_config_validate(older.config()) == MDLM_OK);
    // What a missing field means anyway.
    CHECK(mdlm_config_set(older.config(), "recompute_granularity", "none") == MDLM_OK);
    CHECK(mdlm_config_set(older.config(), "recompute_granularity", "full") == MDLM_ERROR_NOT_FOUND);
    CHECK(std::string(mdlm_last_error()) ==
          "recompute_granularity sets a field that a config of " + std::to_string(size) + " bytes does not have");
    const char *words[] = {"--swiglu", "--recompute-activations"};
    int used = -1;
    CHECK(mdlm_config_parse_flags(older.config(), 2, words, &used) == MDLM_ERROR_NOT_FOUND);
    CHECK(used == -1);
    CHECK(older.config()->activation_func == MDLM_ACT_GELU);
    CHECK(mdlm_config_parse_flags(older.config(), 1, words, &used) == MDLM_OK);
    CHECK(older.config()->activation_func == MDLM_ACT_SWIGLU);
    char text[16];
    CHECK(mdlm_config_get(older.config(), "recompute_granularity", text, sizeof text, nullptr) == MDLM_OK);
    CHECK(std::string(text) == "none");
}

TEST_CASE("structs: a larger struct is taken while its unknown tail is zero") {
    const size_t size = sizeof(mdlm_config) + 16;
    Sized newer(size);
    std::memset(newer.exact.data(), 0x77, size);
    REQUIRE(mdlm_config_init(newer.config(), size) == MDLM_OK);
    for (size_t i = sizeof(mdlm_config); i < size; ++i) CHECK(newer.exact[i] == 0);
    CHECK(newer.config()->struct_size == size);
    CHECK(mdlm_config_set(newer.config(), "num_layers", "3") == MDLM_OK);
    CHECK(newer.config()->num_layers == 3);
    CHECK(newer.config()->struct_size == size);
    const size_t at = sizeof(mdlm_config) + 5;
    newer.exact[at] = 9;
    CHECK(mdlm_config_set(newer.config(), "num_layers", "4") == MDLM_ERROR_UNSUPPORTED);
    CHECK(std::string(mdlm_last_error()) == "config: byte " + std::to_string(at) +
                                                " is 9: expected 0, this library knows the first " +
                                                std::to_string(sizeof(mdlm_config)) + " bytes");
    CHECK(newer.config()->num_layers == 3);

    mdlm_memory known = MDLM_MEMORY_INIT;
    known.host_bytes = 5;
    struct {
        mdlm_memory first;
        uint64_t unknown;
    } larger = {MDLM_MEMORY_INIT, 42};
    larger.first.struct_size = sizeof larger;
    mdlm::copy_out(&larger.first, known, "memory");
    CHECK(larger.first.host_bytes == 5);
    CHECK(larger.first.struct_size == sizeof larger);
    CHECK(larger.unknown == 42);
    mdlm_memory smaller = MDLM_MEMORY_INIT;
    smaller.struct_size = offsetof(mdlm_memory, host_bytes);
    smaller.host_bytes = 1;
    known.peak_bytes = 8;
    mdlm::copy_out(&smaller, known, "memory");
    CHECK(smaller.peak_bytes == 8);
    CHECK(smaller.host_bytes == 1);
}

TEST_CASE("structs: one that ends within a field is refused") {
    mdlm_context_desc desc = MDLM_CONTEXT_DESC_INIT;
    mdlm_context *context = nullptr;
    const mdlm_threadpool pool = {sizeof(mdlm_threadpool), 1, 0,
                                  [](void *, int64_t, void (*)(void *, int64_t, int32_t), void *) {}, nullptr};
    desc.threadpool = &pool;  // of which half would be read
    for (size_t size = offsetof(mdlm_context_desc, threadpool) + 1;
         size < offsetof(mdlm_context_desc, device_allocator); ++size) {
        desc.struct_size = size;
        CHECK(mdlm_context_create(&desc, &context) == MDLM_ERROR_ARGUMENT);
        CHECK(
            std::string(mdlm_last_error()).starts_with("desc: struct_size = " + std::to_string(size) + ": expected "));
    }
}

TEST_CASE("structs: sizes that cannot be") {
    mdlm_config c = MDLM_CONFIG_INIT;
    for (const size_t size : {size_t{0}, size_t{7}, sizeof(size_t), sizeof(size_t) + 7, sizeof c - 1, sizeof c - 4,
                              sizeof c + 4, offsetof(mdlm_config, rotary_base) + 4, sizeof c + 5000, ~size_t{0}}) {
        CHECK(mdlm_config_init(&c, size) == MDLM_ERROR_ARGUMENT);
        mdlm_config copy = MDLM_CONFIG_INIT;
        copy.struct_size = size;
        CHECK(mdlm_config_validate(&copy) == MDLM_ERROR_ARGUMENT);
        CHECK(mdlm_config_set(&copy, "num_layers", "1") == MDLM_ERROR_ARGUMENT);
    }
    c.struct_size = 0;
    CHECK(mdlm_config_validate(&c) == MDLM_ERROR_ARGUMENT);
    CHECK(std::string(mdlm_last_error()) == "config: struct_size = 0: expected " + std::to_string(sizeof c) +
                                                " (set it with the INIT macro or function)");
    CHECK(mdlm_config_init(nullptr, sizeof c) == MDLM_ERROR_ARGUMENT);
    CHECK(mdlm_config_validate(nullptr) == MDLM_ERROR_ARGUMENT);
    CHECK(std::string(mdlm_last_error()) == "config is NULL");
    c = MDLM_CONFIG_INIT;
    CHECK(mdlm_config_set(&c, nullptr, "1") == MDLM_ERROR_ARGUMENT);
    CHECK(std::string(mdlm_last_error()) == "key is NULL");
    CHECK(mdlm_config_set(&c, "num_layers", nullptr) == MDLM_ERROR_ARGUMENT);
    CHECK(mdlm_config_get(&c, nullptr, nullptr, 0, nullptr) == MDLM_ERROR_ARGUMENT);
}

#define CHECK_INIT(type, MACRO)                                                                                        \
    do {                                                                                                               \
        static const type macro = MACRO; /* static: its padding is 0 */                                                \
        type made;                                                                                                     \
        std::memset(&made, 0x77, sizeof made);                                                                         \
        REQUIRE(type##_init(&made, sizeof made) == MDLM_OK);                                                           \
        CHECK(std::memcmp(&macro, &made, sizeof made) == 0);                                                           \
        CHECK(type##_init(nullptr, sizeof made) == MDLM_ERROR_ARGUMENT);                                               \
    } while (0)

TEST_CASE("structs: every init function says what its macro says") {
    CHECK_INIT(mdlm_config, MDLM_CONFIG_INIT);
    CHECK_INIT(mdlm_object_counts, MDLM_OBJECT_COUNTS_INIT);
    CHECK_INIT(mdlm_allocator, MDLM_ALLOCATOR_INIT);
    CHECK_INIT(mdlm_threadpool, MDLM_THREADPOOL_INIT);
    CHECK_INIT(mdlm_chain_options, MDLM_CHAIN_OPTIONS_INIT);
    CHECK_INIT(mdlm_comm_table, MDLM_COMM_TABLE_INIT);
    CHECK_INIT(mdlm_context_desc, MDLM_CONTEXT_DESC_INIT);
    CHECK_INIT(mdlm_context_stats, MDLM_CONTEXT_STATS_INIT);
    CHECK_INIT(mdlm_shape, MDLM_SHAPE_INIT);
    CHECK_INIT(mdlm_memory, MDLM_MEMORY_INIT);
    CHECK_INIT(mdlm_target, MDLM_TARGET_INIT);
    CHECK_INIT(mdlm_plan_layer, MDLM_PLAN_LAYER_INIT);
    CHECK_INIT(mdlm_plan_cost, MDLM_PLAN_COST_INIT);
    CHECK_INIT(mdlm_param_desc, MDLM_PARAM_DESC_INIT);
    CHECK_INIT(mdlm_batch, MDLM_BATCH_INIT);
    CHECK_INIT(mdlm_io, MDLM_IO_INIT);
    CHECK_INIT(mdlm_tape_stats, MDLM_TAPE_STATS_INIT);
    CHECK_INIT(mdlm_backward_options, MDLM_BACKWARD_OPTIONS_INIT);
}

TEST_CASE("version, status names, error line") {
    CHECK(std::string(mdlm_version()) == "0.1.0");
    CHECK(mdlm_api_version() == MDLM_API_VERSION);
    const std::pair<mdlm_status, const char *> names[] = {{0, "MDLM_OK"},
                                                          {1, "MDLM_ERROR_ARGUMENT"},
                                                          {2, "MDLM_ERROR_CONFIG"},
                                                          {3, "MDLM_ERROR_SHAPE"},
                                                          {4, "MDLM_ERROR_OVERFLOW"},
                                                          {5, "MDLM_ERROR_FORMAT"},
                                                          {6, "MDLM_ERROR_NOT_FOUND"},
                                                          {20, "MDLM_ERROR_STATE"},
                                                          {21, "MDLM_ERROR_BUSY"},
                                                          {40, "MDLM_ERROR_MEMORY"},
                                                          {41, "MDLM_ERROR_BUDGET"},
                                                          {42, "MDLM_ERROR_THREAD"},
                                                          {43, "MDLM_ERROR_DEVICE"},
                                                          {44, "MDLM_ERROR_CALLBACK"},
                                                          {45, "MDLM_ERROR_COMM"},
                                                          {46, "MDLM_ERROR_CANCELLED"},
                                                          {60, "MDLM_ERROR_UNSUPPORTED"},
                                                          {90, "MDLM_ERROR_INTERNAL"}};
    for (const auto &[value, name] : names) CHECK(std::string(mdlm_status_name(value)) == name);
    CHECK(std::string(mdlm_status_name(7)) == "unknown status");
    CHECK(std::string(mdlm_status_name(-1)) == "unknown status");

    mdlm_set_last_error("two\nlines");
    CHECK(std::string(mdlm_last_error()) == "two lines");
    mdlm_set_last_error(mdlm_last_error());
    CHECK(std::string(mdlm_last_error()) == "two lines");
    mdlm_config c = MDLM_CONFIG_INIT;
    CHECK(mdlm_config_init(&c, sizeof c) == MDLM_OK);
    CHECK(std::string(mdlm_last_error()) == "two lines");  // success does not clear it
    mdlm_set_last_error(std::string(600, 'x').c_str());
    CHECK(std::string(mdlm_last_error()) == std::string(511, 'x'));
    mdlm_set_last_error(nullptr);
    CHECK(std::string(mdlm_last_error()) == "");
}

TEST_CASE("guard: every exception becomes a status and a line") {
    CHECK(mdlm::guard([] {}) == MDLM_OK);
    CHECK(mdlm::guard([] { mdlm::fail(MDLM_ERROR_STATE, "x = %d", 3); }) == MDLM_ERROR_STATE);
    CHECK(std::string(mdlm_last_error()) == "x = 3");
    CHECK(mdlm::guard([] { throw std::bad_alloc(); }) == MDLM_ERROR_MEMORY);
    CHECK(std::string(mdlm_last_error()) == "out of host memory");
    CHECK(mdlm::guard([] { throw std::logic_error("odd"); }) == MDLM_ERROR_INTERNAL);
    CHECK(std::string(mdlm_last_error()) == "odd");
    CHECK(mdlm::guard([] { throw 5; }) == MDLM_ERROR_INTERNAL);
    CHECK(std::string(mdlm_last_error()) == "an exception of unknown type");
}

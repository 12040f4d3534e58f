// SPDX-License-Identifier: Apache-2.0
// Version, errors, struct initialisers and settings.
#include <cstdio>
#include <cstring>
#include <string>

#include "api/guard.hpp"
#include "api/text.hpp"
#include "base/config.hpp"
#include "base/structs.hpp"

namespace {

// Writes a changed copy back. A caller with an older, smaller struct has no place for newer fields.
void put_back(mdlm_config *to, const mdlm_config &before, const mdlm_config &after, const char *what) {
    const size_t size = to->struct_size;
    if (size < sizeof after) {
        const auto *old_bytes = reinterpret_cast<const char *>(&before),
                   *new_bytes = reinterpret_cast<const char *>(&after);
        if (std::memcmp(old_bytes + size, new_bytes + size, sizeof after - size) != 0)
            mdlm::fail(MDLM_ERROR_NOT_FOUND, "%s sets a field that a config of %zu bytes does not have", what, size);
    }
    mdlm::copy_out(to, after, "config");
}

}  // namespace

#define MDLM_TEXT(x) #x
#define MDLM_VALUE(x) MDLM_TEXT(x)
const char *mdlm_version(void) {
    return MDLM_VALUE(MDLM_VERSION_MAJOR) "." MDLM_VALUE(MDLM_VERSION_MINOR) "." MDLM_VALUE(MDLM_VERSION_PATCH);
}
#undef MDLM_VALUE
#undef MDLM_TEXT

int32_t mdlm_api_version(void) { return MDLM_API_VERSION; }

const char *mdlm_status_name(mdlm_status status) {
    switch (status) {
#define MDLM_NAME(value)                                                                                               \
    case value: return #value
        MDLM_NAME(MDLM_OK);
        MDLM_NAME(MDLM_ERROR_ARGUMENT);
        MDLM_NAME(MDLM_ERROR_CONFIG);
        MDLM_NAME(MDLM_ERROR_SHAPE);
        MDLM_NAME(MDLM_ERROR_OVERFLOW);
        MDLM_NAME(MDLM_ERROR_FORMAT);
        MDLM_NAME(MDLM_ERROR_NOT_FOUND);
        MDLM_NAME(MDLM_ERROR_STATE);
        MDLM_NAME(MDLM_ERROR_BUSY);
        MDLM_NAME(MDLM_ERROR_MEMORY);
        MDLM_NAME(MDLM_ERROR_BUDGET);
        MDLM_NAME(MDLM_ERROR_THREAD);
        MDLM_NAME(MDLM_ERROR_DEVICE);
        MDLM_NAME(MDLM_ERROR_CALLBACK);
        MDLM_NAME(MDLM_ERROR_COMM);
        MDLM_NAME(MDLM_ERROR_CANCELLED);
        MDLM_NAME(MDLM_ERROR_UNSUPPORTED);
        MDLM_NAME(MDLM_ERROR_INTERNAL);
#undef MDLM_NAME
    default: return "unknown status";
    }
}

const char *mdlm_last_error(void) { return mdlm::last_error(); }

void mdlm_set_last_error(const char *text) {
    char copy[512];  // text may be what mdlm_last_error returned
    std::snprintf(copy, sizeof copy, "%s", text == nullptr ? "" : text);
    mdlm::set_last_error(copy);
}

#define MDLM_INIT_FUNCTION(type)                                                                                       \
    mdlm_status type##_init(type *p, size_t struct_size) {                                                             \
        return mdlm::guard([&] { mdlm::init(p, struct_size, #type); });                                                \
    }
MDLM_INIT_FUNCTION(mdlm_config)
MDLM_INIT_FUNCTION(mdlm_object_counts)
MDLM_INIT_FUNCTION(mdlm_allocator)
MDLM_INIT_FUNCTION(mdlm_threadpool)
MDLM_INIT_FUNCTION(mdlm_chain_options)
MDLM_INIT_FUNCTION(mdlm_comm_table)
MDLM_INIT_FUNCTION(mdlm_context_desc)
MDLM_INIT_FUNCTION(mdlm_context_stats)
MDLM_INIT_FUNCTION(mdlm_shape)
MDLM_INIT_FUNCTION(mdlm_memory)
MDLM_INIT_FUNCTION(mdlm_target)
MDLM_INIT_FUNCTION(mdlm_plan_layer)
MDLM_INIT_FUNCTION(mdlm_plan_cost)
MDLM_INIT_FUNCTION(mdlm_param_desc)
MDLM_INIT_FUNCTION(mdlm_batch)
MDLM_INIT_FUNCTION(mdlm_io)
MDLM_INIT_FUNCTION(mdlm_tape_stats)
MDLM_INIT_FUNCTION(mdlm_backward_options)
#undef MDLM_INIT_FUNCTION

mdlm_status mdlm_config_set(mdlm_config *config, const char *key, const char *value) {
    return mdlm::guard([&] {
        const mdlm_config before = mdlm::copy_in(config, "config");
        mdlm::not_null(key, "key");
        mdlm::not_null(value, "value");
        mdlm_config after = before;
        mdlm::config_set(after, key, value);
        put_back(config, before, after, key);
    });
}

mdlm_status mdlm_config_get(const mdlm_config *config, const char *key, char *buf, size_t cap, size_t *out_len) {
    return mdlm::guard([&] {
        const mdlm_config copy = mdlm::copy_in(config, "config");
        mdlm::not_null(key, "key");
        mdlm::write_text(mdlm::config_get(copy, key), buf, cap, out_len);
    });
}

int32_t mdlm_config_key_count(void) { return mdlm::config_key_count(); }
const char *mdlm_config_key(int32_t index) { return mdlm::config_key(index); }

mdlm_status mdlm_config_parse_flags(mdlm_config *config, int argc, const char *const *argv, int *used) {
    return mdlm::guard([&] {
        const mdlm_config before = mdlm::copy_in(config, "config");
        if (argc != 0) mdlm::not_null(argv, "argv");
        mdlm::not_null(used, "used");
        if (argc < 0) mdlm::fail(MDLM_ERROR_ARGUMENT, "argc = %d: expected >= 0", argc);
        mdlm_config after = before;
        const int taken = mdlm::config_parse_flags(after, argc, argv);
        put_back(config, before, after, "a flag");
        *used = taken;
    });
}

mdlm_status mdlm_config_validate(const mdlm_config *config) {
    return mdlm::guard([&] { mdlm::validate(mdlm::copy_in(config, "config")); });
}

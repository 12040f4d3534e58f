// SPDX-License-Identifier: Apache-2.0
// The ABI rule for structs of the caller: the first member is struct_size, the caller's sizeof. Older callers have
// smaller structs, newer ones larger. New fields must be appended so that sizeof grows: one put into tail padding could
// not be told from an older struct.
#pragma once
#include <mdlm/chain.h>

#include <algorithm>
#include <cstddef>
#include <cstring>
#include <type_traits>
#include <utility>

#include "base/status.hpp"

namespace mdlm {

// defaults<T>() is what MDLM_X_INIT says; least is the size that still holds the first field after struct_size.
template <class T>
struct StructInfo;

#define MDLM_STRUCT(type, init, first)                                                                                 \
    template <>                                                                                                        \
    struct StructInfo<type> {                                                                                          \
        static constexpr size_t least = offsetof(type, first) + sizeof(std::declval<type &>().first);                  \
        static constexpr type initial = init; /* static, so that its padding is 0 */                                   \
    }
MDLM_STRUCT(mdlm_config, MDLM_CONFIG_INIT, num_layers);
MDLM_STRUCT(mdlm_allocator, MDLM_ALLOCATOR_INIT, alloc);
MDLM_STRUCT(mdlm_threadpool, MDLM_THREADPOOL_INIT, num_threads);
MDLM_STRUCT(mdlm_chain_options, MDLM_CHAIN_OPTIONS_INIT, label_cap);
MDLM_STRUCT(mdlm_object_counts, MDLM_OBJECT_COUNTS_INIT, contexts);
MDLM_STRUCT(mdlm_comm_table, MDLM_COMM_TABLE_INIT, size);
MDLM_STRUCT(mdlm_context_desc, MDLM_CONTEXT_DESC_INIT, api_version);
MDLM_STRUCT(mdlm_context_stats, MDLM_CONTEXT_STATS_INIT, arena_bytes);
MDLM_STRUCT(mdlm_shape, MDLM_SHAPE_INIT, seq_length);
MDLM_STRUCT(mdlm_memory, MDLM_MEMORY_INIT, peak_bytes);
MDLM_STRUCT(mdlm_target, MDLM_TARGET_INIT, device);
MDLM_STRUCT(mdlm_plan_layer, MDLM_PLAN_LAYER_INIT, unit_first);
MDLM_STRUCT(mdlm_plan_cost, MDLM_PLAN_COST_INIT, forward_ns);
MDLM_STRUCT(mdlm_param_desc, MDLM_PARAM_DESC_INIT, name);
MDLM_STRUCT(mdlm_batch, MDLM_BATCH_INIT, seq_length);
MDLM_STRUCT(mdlm_io, MDLM_IO_INIT, ndim);
MDLM_STRUCT(mdlm_tape_stats, MDLM_TAPE_STATS_INIT, saved_bytes);
MDLM_STRUCT(mdlm_backward_options, MDLM_BACKWARD_OPTIONS_INIT, overwrite_grads);
#undef MDLM_STRUCT

template <class T>
constexpr const T &defaults() {
    return StructInfo<T>::initial;
}

namespace structs {

// Beyond this a struct_size is an uninitialised one, whose tail must not be touched.
inline constexpr size_t largest_tail = 4096;

template <class T>
void check_size(const void *p, size_t size, const char *name) {
    static_assert(std::is_trivially_copyable_v<T> && offsetof(T, struct_size) == 0);
    if (p == nullptr) fail(MDLM_ERROR_ARGUMENT, "%s is NULL", name);
    // No struct of any version ends within a field: half of a pointer would be taken for one.
    if (size < StructInfo<T>::least || size % alignof(T) != 0)
        fail(MDLM_ERROR_ARGUMENT, "%s: struct_size = %zu: expected %zu (set it with the INIT macro or function)", name,
             size, sizeof(T));
    if (size > sizeof(T) + largest_tail)
        fail(MDLM_ERROR_ARGUMENT, "%s: struct_size = %zu: expected %zu, or a little more from a newer header", name,
             size, sizeof(T));
}

inline size_t size_at(const void *p, const char *name) {
    if (p == nullptr) fail(MDLM_ERROR_ARGUMENT, "%s is NULL", name);
    size_t size = 0;
    std::memcpy(&size, p, sizeof size);
    return size;
}

}  // namespace structs

// A copy of an input struct. Fields that a smaller one lacks take their defaults; the copy's struct_size is this
// library's. Bytes that this library does not know must be 0.
template <class T>
T copy_in(const T *in, const char *name) {
    const size_t size = structs::size_at(in, name);
    structs::check_size<T>(in, size, name);
    const auto *bytes = reinterpret_cast<const unsigned char *>(in);
    for (size_t i = sizeof(T); i < size; ++i)
        if (bytes[i] != 0)
            fail(MDLM_ERROR_UNSUPPORTED, "%s: byte %zu is %u: expected 0, this library knows the first %zu bytes", name,
                 i, bytes[i], sizeof(T));
    T value = defaults<T>();
    std::memcpy(&value, in, std::min(size, sizeof(T)));
    value.struct_size = sizeof(T);
    return value;
}

// Fills an output struct up to the smaller of the two sizes. struct_size and whatever lies beyond stay as the caller
// set them.
template <class T>
void copy_out(T *out, const T &value, const char *name) {
    const size_t size = structs::size_at(out, name);
    structs::check_size<T>(out, size, name);
    constexpr size_t skip = sizeof(size_t);
    std::memcpy(reinterpret_cast<unsigned char *>(out) + skip, reinterpret_cast<const unsigned char *>(&value) + skip,
                std::min(size, sizeof(T)) - skip);
}

// Sets up the struct_size bytes at p: known fields to their defaults, the rest to 0.
template <class T>
void init(T *p, size_t struct_size, const T &value, const char *name) {
    structs::check_size<T>(p, struct_size, name);
    auto *bytes = reinterpret_cast<unsigned char *>(p);
    const size_t known = std::min(struct_size, sizeof(T));
    std::memcpy(bytes, &value, known);
    std::fill(bytes + known, bytes + struct_size, static_cast<unsigned char>(0));
    std::memcpy(bytes, &struct_size, sizeof struct_size);
}
template <class T>
void init(T *p, size_t struct_size, const char *name) {
    init(p, struct_size, defaults<T>(), name);
}

}  // namespace mdlm

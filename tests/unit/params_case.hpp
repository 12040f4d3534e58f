// SPDX-License-Identifier: Apache-2.0
// What the cases on memory of parameters share.
#pragma once
#include <doctest/doctest.h>

#include <new>

#include "support/checks.hpp"
#include "support/rig.hpp"

namespace mdlm_test {

// Bytes that a context holds.
struct Counted {
    int64_t alive = 0, calls = 0;
    mdlm_allocator table() {
        return {sizeof(mdlm_allocator),
                [](void *self, size_t bytes, size_t alignment, void *) -> void * {
                    static_cast<Counted *>(self)->alive += static_cast<int64_t>(bytes);
                    ++static_cast<Counted *>(self)->calls;
                    return ::operator new(bytes, std::align_val_t(alignment));
                },
                [](void *self, void *memory, size_t bytes, size_t alignment, void *) {
                    static_cast<Counted *>(self)->alive -= static_cast<int64_t>(bytes);
                    ::operator delete(memory, std::align_val_t(alignment));
                },
                this};
    }
};

struct Flat {
    void *params = nullptr, *grads = nullptr;
    size_t params_bytes = 77, grads_bytes = 77;
    explicit Flat(mdlm_block *block) {
        REQUIRE_OK(mdlm_params_data(block, &params, &params_bytes, &grads, &grads_bytes));
    }
};

inline mdlm_param_desc info(mdlm_block *block, int64_t i) {
    mdlm_param_desc desc = MDLM_PARAM_DESC_INIT;
    REQUIRE_OK(mdlm_param_info(block, i, &desc));
    return desc;
}

inline int64_t count_of(mdlm_block *block) {
    int64_t count = 0;
    REQUIRE_OK(mdlm_param_count(block, &count));
    return count;
}

// Each parameter begins on a multiple of 256 bytes, and the last one's room ends on one.
inline size_t whole(size_t bytes) { return (bytes + 255) / 256 * 256; }

inline mdlm_context_stats stats_of(const Rig &rig) {
    mdlm_context_stats stats = MDLM_CONTEXT_STATS_INIT;
    REQUIRE_OK(mdlm_context_get_stats(rig.context, &stats));
    return stats;
}

inline mdlm_memory memory_of(const Rig &rig) {
    mdlm_memory memory = MDLM_MEMORY_INIT;
    REQUIRE_OK(mdlm_block_memory(rig.block, &memory));
    return memory;
}

inline void create_block(Rig &rig) {
    rig.make_buffers();
    REQUIRE_OK(mdlm_context_create(&rig.desc, &rig.context));
    REQUIRE_OK(mdlm_block_create(rig.context, &rig.config, &rig.block));
}

inline void reserve_block(Rig &rig) {
    REQUIRE_OK(mdlm_block_reserve(rig.block, &rig.shape, nullptr));
    REQUIRE_OK(mdlm_tape_create(rig.block, &rig.tape));
}

inline uint64_t bits_of(std::initializer_list<std::pair<const char *, const char *>> settings) {
    Rig rig(settings);
    REQUIRE_OK(rig.open());
    REQUIRE_OK(rig.step());
    return rig.digest();
}

inline void *at(Buffer &buffer, size_t offset) { return static_cast<char *>(buffer.get()) + offset; }

}  // namespace mdlm_test

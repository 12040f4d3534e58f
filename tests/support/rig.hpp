// SPDX-License-Identifier: Apache-2.0
// A small block with all that is needed for one step, through the C ABI only. Tests change its structs before open().
#pragma once
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <initializer_list>
#include <utility>
#include <vector>

#include "mdlm/mdlm.h"

namespace mdlm_test {

// Bytes of the caller, aligned to 64, filled with a pattern of small numbers that differs by seed.
class Buffer {
public:
    Buffer() = default;
    explicit Buffer(size_t bytes) : room_(bytes + 64), bytes_(bytes) {}
    void *get() { return room_.data() + (64 - reinterpret_cast<uintptr_t>(room_.data()) % 64) % 64; }
    size_t size() const { return bytes_; }

private:
    std::vector<unsigned char> room_;
    size_t bytes_ = 0;
};

inline uint64_t fnv(const void *data, size_t bytes, uint64_t hash = 0xcbf29ce484222325u) {
    for (size_t i = 0; i < bytes; ++i) hash = (hash ^ static_cast<const unsigned char *>(data)[i]) * 0x100000001b3u;
    return hash;
}

struct Rig {
    mdlm_context_desc desc = MDLM_CONTEXT_DESC_INIT;
    mdlm_config config = MDLM_CONFIG_INIT;
    mdlm_shape shape = MDLM_SHAPE_INIT;
    mdlm_batch batch = MDLM_BATCH_INIT;
    mdlm_context *context = nullptr;
    mdlm_block *block = nullptr;
    mdlm_tape *tape = nullptr;
    mdlm_plan *plan = nullptr;
    Buffer x, y, dy, dx;

    // Two layers of width 16 with dropout, s = 8, b = 2, on the reference device; more settings as for mdlm_config_set.
    explicit Rig(std::initializer_list<std::pair<const char *, const char *>> settings = {}) {
        for (auto [key, value] : {std::pair{"num_layers", "2"},
                                  {"hidden_size", "16"},
                                  {"num_attention_heads", "2"},
                                  {"hidden_dropout", "0.1"},
                                  {"attention_dropout", "0.1"}})
            mdlm_config_set(&config, key, value);
        good_settings = true;
        for (auto [key, value] : settings)
            good_settings = good_settings && mdlm_config_set(&config, key, value) == MDLM_OK;
        desc.device = MDLM_DEVICE_REFERENCE;
        shape.seq_length = batch.seq_length = 8;
        shape.micro_batch_size = batch.micro_batch_size = 2;
        batch.training = 1;
        batch.seed = 7;
    }
    Rig(const Rig &) = delete;
    ~Rig() { close(); }
    bool good_settings = false;

    size_t element() const {
        return config.params_dtype == MDLM_DTYPE_BF16 ? 2 : config.params_dtype == MDLM_DTYPE_F64 ? 8 : 4;
    }
    size_t boundary_bytes() const {
        return static_cast<size_t>(shape.seq_length * shape.micro_batch_size * config.hidden_size) * element();
    }
    // The caller's buffers; open() calls it, unless a test did.
    void make_buffers() {
        if (x.size() != 0) return;
        x = Buffer(boundary_bytes()), y = Buffer(boundary_bytes()), dy = Buffer(boundary_bytes()),
        dx = Buffer(boundary_bytes());
        for (size_t i = 0; i < boundary_bytes() / element(); ++i) {
            put(x.get(), i, static_cast<float>(static_cast<int>(i * 37 % 23) - 11) / 8);
            put(dy.get(), i, static_cast<float>(static_cast<int>(i * 29 % 19) - 9) / 8);
        }
    }
    // Each stage stops at the first failure and returns its status; what was made stays until close().
    mdlm_status open() {
        make_buffers();
        if (mdlm_status s = mdlm_context_create(&desc, &context)) return s;
        if (mdlm_status s = mdlm_block_create(context, &config, &block)) return s;
        if (mdlm_status s = mdlm_block_reserve(block, &shape, plan)) return s;
        if (mdlm_status s = mdlm_params_init(block, 42)) return s;
        return mdlm_tape_create(block, &tape);
    }
    mdlm_status forward() { return mdlm_block_forward(block, &batch, x.get(), tape, y.get()); }
    mdlm_status evaluate() { return mdlm_block_forward(block, &batch, x.get(), nullptr, y.get()); }
    mdlm_status backward(const mdlm_backward_options *options = nullptr) {
        return mdlm_block_backward(block, tape, options, dy.get(), shape.input_requires_grad != 0 ? dx.get() : nullptr);
    }
    mdlm_status step() {
        if (mdlm_status s = mdlm_params_zero_grads(block)) return s;
        if (mdlm_status s = forward()) return s;
        return backward();
    }
    // Of y, dx and all gradients: equal exactly when the bits are.
    uint64_t digest() {
        uint64_t hash = fnv(dx.get(), dx.size(), fnv(y.get(), y.size()));
        int64_t count = 0;
        mdlm_param_count(block, &count);
        for (int64_t i = 0; i < count; ++i) {
            mdlm_param_desc info = MDLM_PARAM_DESC_INIT;
            void *grad = nullptr;
            if (mdlm_param_info(block, i, &info) != MDLM_OK || mdlm_param_data(block, i, nullptr, &grad) != MDLM_OK)
                return 0;
            if (grad != nullptr) hash = fnv(grad, info.grad_bytes, hash);
        }
        return hash;
    }
    void close() {
        mdlm_tape_destroy(std::exchange(tape, nullptr));
        mdlm_block_destroy(std::exchange(block, nullptr));
        mdlm_plan_destroy(std::exchange(plan, nullptr));
        mdlm_context_destroy(std::exchange(context, nullptr));
    }

private:
    void put(void *to, size_t i, float value) const {
        if (element() == 8) {
            static_cast<double *>(to)[i] = value;
        } else if (element() == 4) {
            static_cast<float *>(to)[i] = value;
        } else {
            uint32_t bits = 0;  // the pattern's numbers are exact in bf16
            std::memcpy(&bits, &value, 4);
            static_cast<uint16_t *>(to)[i] = static_cast<uint16_t>(bits >> 16);
        }
    }
};

}  // namespace mdlm_test

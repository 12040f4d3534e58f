// SPDX-License-Identifier: Apache-2.0
#include "block/batch.hpp"

#include <cstring>

#include "plan/block_plan.hpp"

namespace mdlm {

namespace {

int32_t *begins(char *image) { return reinterpret_cast<int32_t *>(image + sizeof(DrawState)); }

}  // namespace

void CallState::reserve(int64_t seq) {
    own_.resize(static_cast<size_t>(call_state_bytes(seq)));
    image_ = own_.data(), seq_ = seq;
}

void CallState::reserve(int64_t seq, Memory pinned) {
    pinned_ = std::move(pinned);
    image_ = pinned_.get(), seq_ = seq;
}

void CallState::set(const DrawState &draw) { std::memcpy(image_, &draw, sizeof draw); }

void CallState::set(const int32_t *offsets, int64_t count) {
    int32_t *begin = begins(image_), *end = begin + seq_;
    for (int64_t doc = 0; doc < count; ++doc)
        for (int32_t i = offsets[doc]; i < offsets[doc + 1]; ++i) begin[i] = offsets[doc], end[i] = offsets[doc + 1];
}

void CallState::point(RunState &state, const char *image) const {
    char *at = const_cast<char *>(image);
    state.draw = reinterpret_cast<const DrawState *>(at);
    if (state.mask.doc_begin != nullptr) state.mask.doc_begin = begins(at), state.mask.doc_end = begins(at) + seq_;
}

void check_documents(const int32_t *offsets, int64_t count, int64_t max_documents, int64_t seq, const char *name) {
    if (reinterpret_cast<uintptr_t>(offsets) % alignof(int32_t) != 0)
        fail(MDLM_ERROR_ARGUMENT, "%s = %p: expected an address aligned to %zu", name,
             static_cast<const void *>(offsets), alignof(int32_t));
    if (count < 1) fail(MDLM_ERROR_SHAPE, "num_documents = %lld: expected at least 1 with %s", (long long)count, name);
    if (count > max_documents)
        fail(MDLM_ERROR_SHAPE, "num_documents = %lld: expected at most max_documents = %lld, as reserved",
             (long long)count, (long long)max_documents);
    if (offsets[0] != 0) fail(MDLM_ERROR_SHAPE, "%s[0] = %d: expected 0", name, offsets[0]);
    for (int64_t i = 0; i < count; ++i)
        if (offsets[i + 1] <= offsets[i])
            fail(MDLM_ERROR_SHAPE, "%s[%lld] = %d: expected more than %s[%lld] = %d", name, (long long)i + 1,
                 offsets[i + 1], name, (long long)i, offsets[i]);
    if (seq >= 0 && offsets[count] != seq)
        fail(MDLM_ERROR_SHAPE, "%s[%lld] = %d: expected seq_length = %lld", name, (long long)count, offsets[count],
             (long long)seq);
}

void check_batch(const Config &config, const mdlm_shape &reserved, const mdlm_batch &b) {
    const auto range = [](const char *name, int64_t value, int64_t most, const char *what) {
        if (value < 1 || value > most)
            fail(MDLM_ERROR_SHAPE, "%s = %lld: expected 1 .. %lld, as reserved%s", name, (long long)value,
                 (long long)most, what);
    };
    range("batch.seq_length", b.seq_length, reserved.seq_length, "");
    range("batch.micro_batch_size", b.micro_batch_size, reserved.micro_batch_size, "");
    const int64_t most = most_tokens(reserved), tokens = b.seq_length * b.micro_batch_size;
    if (tokens > most)
        fail(MDLM_ERROR_SHAPE,
             "batch.seq_length * batch.micro_batch_size = %lld tokens: expected at most max_tokens = %lld, as reserved",
             (long long)tokens, (long long)most);
    check_sequence(config, b.seq_length);
    if (b.training != 0 && b.training != 1)
        fail(MDLM_ERROR_ARGUMENT, "batch.training = %d: expected 0 or 1", b.training);
    if (b.attention_mask_type < MDLM_MASK_DEFAULT || b.attention_mask_type > MDLM_MASK_BLOCK_CAUSAL)
        fail(MDLM_ERROR_ARGUMENT, "batch.attention_mask_type = %d: expected 0 .. 3", b.attention_mask_type);
    if (b.attention_mask_type == MDLM_MASK_BLOCK_CAUSAL && config.mask_block_size < 1)
        fail(MDLM_ERROR_CONFIG,
             "batch.attention_mask_type = block_causal: expected a config with mask_block_size >= 1, got %lld",
             (long long)config.mask_block_size);
    if (b.micro_batch_index > 65535)
        fail(MDLM_ERROR_ARGUMENT, "batch.micro_batch_index = %u: expected 0 .. 65535", b.micro_batch_index);
    if (b.cu_seqlens == nullptr && b.num_documents != 0)
        fail(MDLM_ERROR_ARGUMENT, "batch.num_documents = %lld with cu_seqlens NULL: expected 0",
             (long long)b.num_documents);
}

RunState make_state(const Config &config, const mdlm_batch &b, const int32_t *offsets, int64_t count, CallState &call) {
    RunState s;
    s.tokens = {b.seq_length, b.micro_batch_size, config.batch_first};
    s.mask.type = b.attention_mask_type == MDLM_MASK_DEFAULT ? config.attention_mask_type : b.attention_mask_type;
    s.mask.block = config.mask_block_size;
    s.mask.left = config.window_left, s.mask.right = config.window_right;
    s.mask.seq = b.seq_length;
    if (offsets != nullptr) {
        if (b.micro_batch_size != 1)
            fail(MDLM_ERROR_SHAPE, "batch.micro_batch_size = %lld with packed documents: expected 1",
                 (long long)b.micro_batch_size);
        call.set(offsets, count);
        s.mask.doc_begin = offsets;  // there are some; point says where
    }
    s.training = b.training != 0;
    call.set(DrawState{b.seed, b.step, b.micro_batch_index});
    call.point(s, call.image());
    return s;
}

}  // namespace mdlm

// SPDX-License-Identifier: Apache-2.0
// Shapes, masks and layouts of attention for tests.
#pragma once
#include <memory>
#include <string>
#include <vector>

#include "support/tensor.hpp"

namespace mdlm_test {

// Query heads, then the key, then the value of each group, side by side in a row: as linear_qkv writes them.
struct Packed {
    int64_t heads, groups, d;
    int64_t per_group() const { return heads / groups; }
    int64_t width() const { return (heads + 2 * groups) * d; }
    mdlm::Heads q(Tensor &t) const { return part(t, 0); }
    mdlm::Heads k(Tensor &t) const { return part(t, per_group()); }
    mdlm::Heads v(Tensor &t) const { return part(t, per_group() + 1); }

private:
    mdlm::Heads part(Tensor &t, int64_t slot) const {
        return {static_cast<std::byte *>(t.data()) + slot * d * mdlm::size_of(t.type()), width(), (per_group() + 2) * d,
                d};
    }
};
// Heads of one kind alone: [rows, heads, d].
inline mdlm::Heads alone(Tensor &t, int64_t groups, int64_t per_group, int64_t d) {
    return {t.data(), groups * per_group * d, per_group * d, d};
}

// Documents as kernels take them: per token, where its document begins and ends.
struct Documents {
    std::vector<int32_t> begin, end;
    explicit Documents(const std::vector<int32_t> &offsets) {
        for (size_t n = 0; n + 1 < offsets.size(); ++n) {
            begin.insert(begin.end(), size_t(offsets[n + 1] - offsets[n]), offsets[n]);
            end.insert(end.end(), size_t(offsets[n + 1] - offsets[n]), offsets[n + 1]);
        }
    }
    void set(mdlm::Mask &mask) const {
        mask.doc_begin = begin.empty() ? nullptr : begin.data();
        mask.doc_end = end.empty() ? nullptr : end.data();
    }
};

struct AttentionCase {
    const char *name;
    int64_t seq, batch;
    bool batch_first;
    int64_t heads, groups, d;
    mdlm_mask_type mask;
    int64_t block, left, right;
    std::vector<int32_t> documents;
    double dropout;

    // documents must outlive what is returned.
    mdlm::Attention shape(mdlm::DType dtype, const Documents &docs) const {
        mdlm::Attention a{dtype, {seq, batch, batch_first}, {}, dropout_of(dropout), heads, groups, d, 0.7};
        a.mask.type = mask;
        a.mask.block = block;
        a.mask.left = left;
        a.mask.right = right;
        a.mask.seq = seq;
        docs.set(a.mask);
        return a;
    }
    Packed packed() const { return {heads, groups, d}; }
    mdlm::KernelSize size(mdlm::DType dtype) const {
        mdlm::KernelSize s;
        s.dtype = dtype;
        s.rows = seq * batch;
        s.seq = seq;
        s.heads = heads;
        s.groups = groups;
        s.d = d;
        return s;
    }
};

inline std::vector<AttentionCase> attention_cases() {
    const auto none = MDLM_MASK_NO_MASK, causal = MDLM_MASK_CAUSAL, block = MDLM_MASK_BLOCK_CAUSAL;
    const std::vector<int32_t> docs = {0, 3, 4, 9};
    return {
        {"no mask", 5, 2, false, 2, 2, 3, none, 0, -1, -1, {}, 0.0},
        {"no mask, one token", 1, 2, false, 2, 1, 3, none, 0, -1, -1, {}, 0.0},
        {"causal, grouped", 6, 2, false, 4, 2, 3, causal, 0, -1, -1, {}, 0.0},
        {"causal, grouped, batch first, dropout", 6, 2, true, 4, 2, 3, causal, 0, -1, -1, {}, 0.3},
        {"one group, dropout", 5, 1, false, 3, 1, 4, none, 0, -1, -1, {}, 0.2},
        {"window", 8, 1, false, 2, 1, 3, none, 0, 2, 1, {}, 0.0},
        {"window to the left, causal", 8, 1, false, 2, 2, 3, causal, 0, 3, -1, {}, 0.0},
        {"block causal", 8, 2, true, 2, 1, 3, block, 3, -1, -1, {}, 0.0},
        {"block causal, window, dropout", 8, 1, false, 2, 1, 3, block, 3, 4, 1, {}, 0.3},
        {"documents", 9, 1, false, 2, 2, 3, none, 0, -1, -1, docs, 0.0},
        {"documents, causal, grouped", 9, 1, false, 4, 2, 3, causal, 0, -1, -1, docs, 0.0},
        {"documents, block causal, dropout", 9, 1, false, 2, 1, 3, block, 2, -1, -1, docs, 0.25},
        {"documents, window, batch first", 9, 1, true, 2, 1, 3, none, 0, 1, 1, docs, 0.0},
        {"wide head", 3, 1, false, 1, 1, 70, causal, 0, -1, -1, {}, 0.3},
    };
}

}  // namespace mdlm_test

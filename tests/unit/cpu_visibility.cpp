// SPDX-License-Identifier: Apache-2.0
// What a token does not see changes none of its bits, whatever it is: NaN, infinity, numbers whose products overflow.
// Drawn masks, packed documents, windows, dtypes and layers, through the C ABI; who sees whom is worked out here from
// the words of the header.
#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <string>
#include <vector>

#include "base/dtype.hpp"
#include "support/checks.hpp"
#include "support/random.hpp"
#include "support/repro.hpp"
#include "support/rig.hpp"
#include "support/split_mix.hpp"

using namespace mdlm_test;

namespace {

// to[i * s + j]: does token i of a sequence depend on token j?
using Relation = std::vector<char>;

Relation sees(const mdlm_config &c, int64_t s, const std::vector<int32_t> &documents) {
    Relation to(size_t(s * s));
    const auto document = [&](int64_t i) {
        return std::upper_bound(documents.begin(), documents.end(), int32_t(i)) - documents.begin() - 1;
    };
    for (int64_t i = 0; i < s; ++i)
        for (int64_t j = 0; j < s; ++j) {
            bool seen = document(i) == document(j);
            const int64_t start = documents[size_t(document(i))];
            if (c.attention_mask_type == MDLM_MASK_CAUSAL) seen = seen && j <= i;
            if (c.attention_mask_type == MDLM_MASK_BLOCK_CAUSAL)
                seen = seen && (j - start) / c.mask_block_size <= (i - start) / c.mask_block_size;
            if (c.window_left >= 0) seen = seen && i - j <= c.window_left;
            if (c.window_right >= 0) seen = seen && j - i <= c.window_right;
            to[size_t(i * s + j)] = seen;
        }
    return to;
}
// i -> k -> j, once more with each layer.
Relation through(const Relation &one, int64_t s, int64_t layers) {
    Relation all = one;
    for (int64_t l = 1; l < layers; ++l) {
        Relation next(all.size());
        for (int64_t i = 0; i < s; ++i)
            for (int64_t k = 0; k < s; ++k)
                for (int64_t j = 0; one[size_t(i * s + k)] && j < s; ++j)
                    next[size_t(i * s + j)] |= all[size_t(k * s + j)];
        all = next;
    }
    return all;
}

struct Case {
    Rig rig;
    std::vector<int32_t> documents{0};
    int64_t s = 0, b = 1;
    std::vector<std::pair<int64_t, int64_t>> replaced;  // (position, sequence)
    double value = NAN;
    bool whole_row = true, gradient_too = false;
    std::string words;

    explicit Case(uint64_t seed) {
        Random r(seed);
        mdlm_config &c = rig.config;
        s = rig.shape.seq_length = rig.batch.seq_length = r.one_of<int64_t>({3, 20, 50, 97, 130, 210});
        c.num_layers = r.in(1, 3);
        c.hidden_size = r.one_of<int64_t>({8, 24, 40});
        c.num_query_groups = r.in(1, 2);
        c.num_attention_heads = c.num_query_groups * r.in(1, 2);
        c.kv_channels = r.one_of<int64_t>({4, 6, 20, 50});
        c.ffn_hidden_size = r.in(5, 40);
        c.normalization = r.one_of({MDLM_NORM_LAYERNORM, MDLM_NORM_RMSNORM});
        c.qk_layernorm = r.percent(40);
        c.position_embedding_type = r.percent(60) ? MDLM_POSITION_ROPE : MDLM_POSITION_NONE;
        c.activation_func =
            r.one_of({MDLM_ACT_GELU, MDLM_ACT_GELU_TANH, MDLM_ACT_SQUARED_RELU, MDLM_ACT_SWIGLU, MDLM_ACT_GEGLU});
        c.add_bias_linear = r.percent(50);
        c.batch_first = r.percent(50);
        c.params_dtype = r.percent(50) ? MDLM_DTYPE_BF16 : MDLM_DTYPE_F32;
        c.attention_backend = r.one_of({MDLM_ATTENTION_FUSED, MDLM_ATTENTION_UNFUSED});
        c.attention_mask_type = r.one_of({MDLM_MASK_NO_MASK, MDLM_MASK_CAUSAL, MDLM_MASK_BLOCK_CAUSAL});
        if (c.attention_mask_type == MDLM_MASK_BLOCK_CAUSAL)
            c.mask_block_size = r.one_of<int32_t>({1, 4, 33, INT32_MAX});
        const std::initializer_list<int64_t> windows = {0, 3, 40, 100, INT64_MAX};
        if (r.percent(50)) c.window_left = r.one_of<int64_t>(windows);
        if (r.percent(50)) c.window_right = r.one_of<int64_t>(windows);
        c.hidden_dropout = r.percent(30) ? 0.1 : 0.0, c.attention_dropout = r.percent(30) ? 0.1 : 0.0;
        if (r.percent(30)) {
            c.recompute_granularity = MDLM_RECOMPUTE_GRANULARITY_FULL,
            c.recompute_method = MDLM_RECOMPUTE_METHOD_UNIFORM;
            c.recompute_num_layers = 1;
        }
        rig.desc.device = r.percent(15) ? MDLM_DEVICE_REFERENCE : MDLM_DEVICE_CPU;
        rig.desc.num_threads = rig.desc.device == MDLM_DEVICE_CPU ? int32_t(r.in(1, 3)) : 1;
        rig.batch.training = 1;
        if (r.percent(60)) {
            for (int64_t i = r.in(1, 3); i > 0 && s > 1; --i) documents.push_back(int32_t(r.in(1, s - 1)));
            std::sort(documents.begin(), documents.end());
            documents.erase(std::unique(documents.begin(), documents.end()), documents.end());
        } else {
            b = r.in(1, 2);
        }
        rig.shape.micro_batch_size = rig.batch.micro_batch_size = b;
        for (int64_t i = r.in(1, 3); i > 0; --i) replaced.emplace_back(r.in(0, s - 1), r.in(0, b - 1));
        value = r.one_of<double>({NAN, NAN, INFINITY, -INFINITY, 3e38, -3e38});
        whole_row = r.percent(50), gradient_too = r.percent(50);
        words = "s " + std::to_string(s) + ", b " + std::to_string(b) + ", layers " + std::to_string(c.num_layers) +
                ", d " + std::to_string(c.kv_channels) + ", mask " + std::to_string(c.attention_mask_type) +
                ", window " + std::to_string(c.window_left) + " " + std::to_string(c.window_right) + ", documents " +
                std::to_string(documents.size()) + ", dtype " + std::to_string(c.params_dtype) + ", backend " +
                std::to_string(c.attention_backend) + ", device " + std::to_string(rig.desc.device) + ", threads " +
                std::to_string(rig.desc.num_threads) + ", value " + std::to_string(value);
        documents.push_back(int32_t(s));
        if (documents.size() > 2) {
            rig.shape.max_documents = rig.batch.num_documents = int64_t(documents.size()) - 1;
            rig.batch.cu_seqlens = documents.data();
        }
        rig.make_buffers();
        fill_uniform(dtype(), rig.x.get(), s * b * c.hidden_size, seed, 2.0);
        fill_uniform(dtype(), rig.dy.get(), s * b * c.hidden_size, seed + 1);
    }
    Case(const Case &) = delete;

    mdlm::DType dtype() const {
        return rig.config.params_dtype == MDLM_DTYPE_BF16 ? mdlm::DType::bf16 : mdlm::DType::f32;
    }
    int64_t row(int64_t i, int64_t n) const { return rig.config.batch_first ? n * s + i : i * b + n; }
    void replace() {
        for (const auto &[i, n] : replaced)
            for (int64_t c = 0; c < (whole_row ? rig.config.hidden_size : 1); ++c) {
                const int64_t at = row(i, n) * rig.config.hidden_size + c;
                mdlm::store(dtype(), rig.x.get(), at, value);
                if (gradient_too) mdlm::store(dtype(), rig.dy.get(), at, value);
            }
    }
    std::vector<char> bytes(Buffer &of) const {
        return {static_cast<char *>(of.get()), static_cast<char *>(of.get()) + of.size()};
    }
    bool same(const std::vector<char> &before, Buffer &now, int64_t at) const {
        const size_t size = size_t(rig.config.hidden_size) * rig.element();
        return std::memcmp(before.data() + size_t(at) * size, static_cast<char *>(now.get()) + size_t(at) * size,
                           size) == 0;
    }
    bool has_nan(Buffer &of, int64_t at) const {
        bool any = false;
        for (int64_t c = 0; c < rig.config.hidden_size; ++c)
            any = any || std::isnan(mdlm::load(dtype(), of.get(), at * rig.config.hidden_size + c));
        return any;
    }
};

struct Counts {
    int64_t kept = 0, kept_gradients = 0, reached = 0, all = 0;
};

void check(uint64_t seed, Counts &counts) {
    Case c(seed);
    CAPTURE(seed);
    CAPTURE(c.words);
    const Relation reaches = through(sees(c.rig.config, c.s, c.documents), c.s, c.rig.config.num_layers);
    REQUIRE_OK(c.rig.open());
    REQUIRE_OK(c.rig.step());
    const std::vector<char> y = c.bytes(c.rig.y), dx = c.bytes(c.rig.dx);
    for (int64_t i = 0; i < c.s * c.b; ++i) REQUIRE_FALSE((c.has_nan(c.rig.y, i) || c.has_nan(c.rig.dx, i)));
    c.replace();
    REQUIRE_OK(c.rig.step());
    int64_t wrong_y = 0, wrong_dx = 0, lost = 0;
    for (int64_t n = 0; n < c.b; ++n) {
        std::vector<char> reached(size_t(c.s));
        for (int64_t i = 0; i < c.s; ++i)
            for (const auto &[j, m] : c.replaced) reached[size_t(i)] |= char(m == n && reaches[size_t(i * c.s + j)]);
        for (int64_t i = 0; i < c.s; ++i) {
            bool influences_reached = false;
            for (int64_t k = 0; k < c.s; ++k) influences_reached |= reaches[size_t(k * c.s + i)] && reached[size_t(k)];
            const int64_t at = c.row(i, n);
            ++counts.all;
            if (!reached[size_t(i)]) {
                ++counts.kept;
                wrong_y += !c.same(y, c.rig.y, at);
            } else if (std::isnan(c.value)) {
                ++counts.reached;
                lost += !c.has_nan(c.rig.y, at);
            }
            if (influences_reached) continue;
            ++counts.kept_gradients;
            wrong_dx += !c.same(dx, c.rig.dx, at);
        }
    }
    CHECK_MESSAGE(wrong_y == 0, wrong_y, " tokens whose y changed");
    CHECK_MESSAGE(wrong_dx == 0, wrong_dx, " tokens whose dx changed");
    CHECK_MESSAGE(lost == 0, lost, " tokens that see a NaN and have none");
}

}  // namespace

TEST_CASE("cpu: what a token does not see changes none of its bits, be it NaN, infinity or huge") {
    Counts counts;
    const uint64_t draws = slow() ? 24 : 120;
    for (uint64_t seed = 1; seed <= draws; ++seed) check(seed, counts);
    // The draws tell something.
    CHECK(counts.kept > counts.all / 4);
    CHECK(counts.kept_gradients > counts.all / 5);
    CHECK(counts.reached > counts.all / 20);
}

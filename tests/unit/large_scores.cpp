// SPDX-License-Identifier: Apache-2.0
// Attention with scores of any size. Fused backward rebuilds each row of probabilities, and it must sum to 1 whatever
// the scores are; single probabilities are compared with long double arithmetic on the same q and k, which shares
// nothing with the devices.
#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "device/device.hpp"
#include "support/checks.hpp"
#include "support/random.hpp"
#include "support/repro.hpp"
#include "support/rig.hpp"

using namespace mdlm;
using namespace mdlm_test;

namespace {

// One head. Most queries see themselves only and the last `wide` see all keys, so that long rows take little time.
struct Rows {
    static constexpr int64_t d = 8, wide = 8;
    int64_t s;
    double scale = 0.5;
    std::vector<float> q, k, probabilities;  // [s, d]; [wide, s] of the last queries, as backward rebuilds them
    std::vector<float> context;              // of values that are all 1
    explicit Rows(int64_t n) : s(n), q(size_t(n * d)), k(size_t(n * d)) {}

    void run(Device &device) {
        std::vector<int32_t> begin(static_cast<size_t>(s)), end(static_cast<size_t>(s));
        for (int64_t i = 0; i < s; ++i) {
            const bool all = i >= s - wide;
            begin[size_t(i)] = all ? 0 : int32_t(i), end[size_t(i)] = int32_t(all ? s : i + 1);
        }
        Attention a{DType::f32, {s, 1, false}, {}, {}, 1, 1, d, scale};
        a.mask.seq = s, a.mask.doc_begin = begin.data(), a.mask.doc_end = end.data();
        const auto heads = [](std::vector<float> &x) { return Heads{x.data(), d, d, d}; };
        const size_t count = q.size();
        std::vector<float> v(count, 1.0f), dcontext(count), dq(count), dk(count), dv(count);
        std::vector<float> row_max(static_cast<size_t>(s)), inverse(static_cast<size_t>(s));
        context.assign(count, 0.0f);
        KernelSize size;
        size.rows = size.seq = s, size.heads = size.groups = 1, size.d = d;
        const auto scratch = [&](Kernel kernel) {
            return std::make_unique<Block>(device.traits().workspace(kernel, size));
        };
        device.run(AttentionForward{a, heads(q), heads(k), heads(v), heads(context), row_max.data(), inverse.data(),
                                    scratch(Kernel::attention_forward)->data()});
        // Channel c of the gradient belongs to one query: dv is then its row of probabilities.
        for (int64_t c = 0; c < wide; ++c) dcontext[size_t((s - wide + c) * d + c)] = 1.0f;
        device.run(AttentionBackward{a, heads(q), heads(k), heads(v), heads(context), heads(dcontext), row_max.data(),
                                     inverse.data(), heads(dq), heads(dk), heads(dv),
                                     scratch(Kernel::attention_backward)->data()});
        probabilities.resize(size_t(wide * s));
        for (int64_t c = 0; c < wide; ++c)
            for (int64_t j = 0; j < s; ++j) probabilities[size_t(c * s + j)] = dv[size_t(j * d + c)];
        for (const std::vector<float> *x : {&dq, &dk, &context})
            REQUIRE(std::all_of(x->begin(), x->end(), [](float one) { return std::isfinite(one); }));
    }
    long double score(int64_t query, int64_t key) const {
        long double sum = 0;
        for (int64_t c = 0; c < d; ++c) sum += (long double)q[size_t(query * d + c)] * k[size_t(key * d + c)];
        return scale * sum;
    }

private:
    // Scratch, aligned as the arena aligns it.
    class Block {
    public:
        explicit Block(int64_t bytes) : group_(size_t(bytes) + 256) {}
        void *data() { return group_.data() + (256 - reinterpret_cast<uintptr_t>(group_.data()) % 256) % 256; }

    private:
        std::vector<char> group_;
    };
};

struct Pattern {
    const char *name;
    std::function<void(Rows &)> fill;
};

// q is the same in all channels and keys differ by what `of` says, so that the score is 4 q of(j), the scale being 1 /
// 2 and d 8.
Pattern by_key(const char *name, double query, std::function<double(int64_t, int64_t)> of) {
    return {name, [=](Rows &r) {
                std::fill(r.q.begin(), r.q.end(), float(query));
                for (int64_t i = 0; i < r.s * Rows::d; ++i) r.k[size_t(i)] = float(of(i / Rows::d, r.s));
            }};
}
Pattern drawn(const char *name, double size) {
    return {name, [=](Rows &r) {
                fill_uniform(DType::f32, r.q.data(), r.s * Rows::d, 1, std::sqrt(size));
                fill_uniform(DType::f32, r.k.data(), r.s * Rows::d, 2, std::sqrt(size));
            }};
}

std::vector<Pattern> patterns() {
    std::vector<Pattern> all;
    for (const double b : {0.3, 1.1, 111.0, 1110.0, 133120.0, 3.1e12, 1.7e18})
        all.push_back(by_key("all the same", b, [b](int64_t, int64_t) { return b; }));
    for (const double b : {1.1, 353.0, 133120.0, 1.7e18})
        all.push_back(by_key("all the same, negative", -b, [b](int64_t, int64_t) { return b; }));
    for (const double size : {1.0, 30.0, 1e3, 1e5, 1e7, 1e11, 1e20, 1e36}) all.push_back(drawn("drawn", size));
    // Each tile of keys has a larger maximum than all before it.
    for (const double step : {1e-5, 1e-3, 0.1, 3.0})
        all.push_back(by_key("rising", 0.37, [step](int64_t j, int64_t) { return step * double(j); }));
    all.push_back(by_key("falling", 0.37, [](int64_t j, int64_t) { return -1e-3 * double(j); }));
    // As much weight on many keys far below the maximum as on it.
    all.push_back(by_key("one above all", 1.0,
                         [](int64_t j, int64_t s) { return j + 1 == s ? 0.1 + std::log(double(s)) / 4 : 0.1; }));
    all.push_back(by_key("two far apart", 1e15, [](int64_t j, int64_t) { return j % 2 == 0 ? 1e15 : -1e15; }));
    return all;
}

void check(Rows &r, Device &device) {
    r.run(device);
    const double limit = r.s > 8192 ? 1e-5 : 1e-6;
    for (int64_t c = 0; c < Rows::wide; ++c) {
        const int64_t query = r.s - Rows::wide + c;
        const float *p = r.probabilities.data() + c * r.s;
        double total = 0;
        for (int64_t j = 0; j < r.s; ++j) total += p[j];
        CHECK(std::fabs(total - 1.0) <= limit);
        // A float sum, tile by tile.
        CHECK(std::fabs(double(r.context[size_t(query * Rows::d)]) - 1.0) <= 2e-6 + 1e-9 * double(r.s));
        long double most = -INFINITY, sum = 0, largest = 0;
        std::vector<long double> score(static_cast<size_t>(r.s));
        for (int64_t j = 0; j < r.s; ++j) {
            score[size_t(j)] = r.score(query, j);
            most = std::max(most, score[size_t(j)]), largest = std::max(largest, std::fabs(score[size_t(j)]));
        }
        if (largest > 1000) continue;  // where a float cannot say what the exponent is, all that holds is the sum
        for (int64_t j = 0; j < r.s; ++j) sum += std::exp(score[size_t(j)] - most);
        double worst = 0;
        for (int64_t j = 0; j < r.s; ++j) {
            const long double expected = std::exp(score[size_t(j)] - most) / sum;
            worst = std::max(worst, double(std::fabs(p[j] - expected) / (expected + 1e-30L)));
        }
        CHECK(worst <= 2e-6 + 1e-6 * double(largest));
    }
}

}  // namespace

TEST_CASE("cpu: rows of probabilities that backward rebuilds sum to 1, whatever the scores") {
    for (const int32_t threads : {0, 1, 3}) {  // 0: the reference device
        const auto device =
            threads == 0 ? make_reference_device() : make_cpu_device(make_own_pool(threads), MDLM_MATMUL_AUTO);
        CAPTURE(threads);
        const std::vector<Pattern> all = patterns();
        for (const int64_t s : {9, 100, 1000, 8192, 131072})
            for (size_t i = 0; i < all.size(); ++i) {
                if ((s > 8192 && (threads != 1 || i % 4 != 0)) || (mdlm_test::sanitized && s > 1000)) continue;
                CAPTURE(s);
                CAPTURE(all[i].name);
                Rows r(s);
                all[i].fill(r);
                check(r, *device);
            }
    }
}

TEST_CASE("cpu: a softmax scale that is 0 as a float, and products above what a float holds") {
    for (const bool reference : {true, false}) {
        const auto device = reference ? make_reference_device() : make_cpu_device(make_own_pool(1), MDLM_MATMUL_AUTO);
        CAPTURE(reference);
        for (const double scale : {1e-60, 1e-37, 1e-30}) {
            CAPTURE(scale);
            Rows r(200);
            r.scale = scale;
            drawn("", 1e41).fill(r);
            check(r, *device);
        }
    }
}

// One head of 64 channels, linear_qkv is its bias b alone: q = k = v = b for all tokens, every score is 8 b^2 and every
// probability 1 / s. linear_proj is the identity over b and linear_fc2 0, so y = x + 1, and b times the gradient of the
// values' bias is s where dy = 1.
TEST_CASE("cpu: attention in a block with scores up to 1e11") {
    constexpr int64_t s = 5, h = 64;
    for (const char *backend : {"fused", "unfused"})
        for (const mdlm_device_kind device : {MDLM_DEVICE_CPU, MDLM_DEVICE_REFERENCE})
            for (const float b : {1.1f, 11.3f, 37.0f, 111.0f, 353.0f, 1110.0f, 11100.0f, 133120.0f})
                for (const char *scale : {"0", "1e-60"}) {
                    CAPTURE(backend);
                    CAPTURE(device);
                    CAPTURE(b);
                    CAPTURE(scale);
                    Rig rig({{"num_layers", "1"},
                             {"hidden_size", "64"},
                             {"num_attention_heads", "1"},
                             {"ffn_hidden_size", "8"},
                             {"position_embedding_type", "none"},
                             {"attention_mask_type", "no_mask"},
                             {"add_qkv_bias", "1"},
                             {"final_layernorm", "0"},
                             {"hidden_dropout", "0"},
                             {"attention_dropout", "0"},
                             {"attention_backend", backend},
                             {"softmax_scale", scale}});
                    REQUIRE(rig.good_settings);
                    rig.desc.device = device, rig.desc.num_threads = 1;
                    rig.shape.seq_length = rig.batch.seq_length = s,
                    rig.shape.micro_batch_size = rig.batch.micro_batch_size = 1;
                    rig.make_buffers();
                    std::fill_n(static_cast<float *>(rig.dy.get()), s * h, 1.0f);
                    REQUIRE_OK(rig.open());
                    const auto write = [&](const char *name, const std::vector<float> &values) {
                        int64_t index = 0;
                        REQUIRE_OK(mdlm_param_find(rig.block, name, &index));
                        REQUIRE_OK(mdlm_param_write(rig.block, index, nullptr, nullptr, nullptr, MDLM_DTYPE_F32,
                                                    values.data(), 4 * values.size()));
                        return index;
                    };
                    std::vector<float> identity(static_cast<size_t>(h * h));
                    for (int64_t i = 0; i < h; ++i) identity[size_t(i * h + i)] = 1.0f / b;
                    write("layers.0.self_attention.linear_qkv.weight", std::vector<float>(3 * h * h));
                    write("layers.0.mlp.linear_fc2.weight", std::vector<float>(h * 8));
                    write("layers.0.self_attention.linear_proj.weight", identity);
                    const int64_t bias = write("layers.0.self_attention.linear_qkv.bias", std::vector<float>(3 * h, b));
                    REQUIRE_OK(rig.step());
                    const auto *x = static_cast<const float *>(rig.x.get()),
                               *y = static_cast<const float *>(rig.y.get());
                    const auto *dx = static_cast<const float *>(rig.dx.get());
                    std::vector<float> gradient(3 * h);
                    REQUIRE_OK(mdlm_param_grad_read(rig.block, bias, nullptr, nullptr, nullptr, MDLM_DTYPE_F32,
                                                    gradient.data(), 4 * gradient.size()));
                    for (int64_t i = 0; i < s * h; ++i) {
                        CHECK(std::fabs(y[i] - x[i] - 1.0f) <= 1e-5f);
                        CHECK(std::isfinite(dx[i]));
                    }
                    for (int64_t i = 2 * h; i < 3 * h; ++i)
                        CHECK(std::fabs(gradient[size_t(i)] * b - float(s)) <= 1e-5f * float(s));
                }
}

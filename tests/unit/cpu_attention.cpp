// SPDX-License-Identifier: Apache-2.0
// The CPU device's attention, fused and in steps, and qk-norm with rotary, against the reference device and to the bit
// among themselves.
#include <numbers>
#include <utility>

#include "support/attention_cases.hpp"
#include "unit/cpu_case.hpp"

using namespace mdlm;
using namespace mdlm_test;

namespace {

// Larger than a tile of queries or keys, with edges.
std::vector<AttentionCase> cases() {
    std::vector<AttentionCase> all = attention_cases();
    const auto none = MDLM_MASK_NO_MASK, causal = MDLM_MASK_CAUSAL, block = MDLM_MASK_BLOCK_CAUSAL;
    all.push_back({"tiles", 130, 2, false, 4, 2, 24, none, 0, -1, -1, {}, 0.0});
    all.push_back({"tiles, causal, dropout, batch first", 135, 2, true, 2, 1, 24, causal, 0, -1, -1, {}, 0.25});
    all.push_back({"tiles, block causal, window", 200, 1, false, 3, 3, 8, block, 48, 70, -1, {}, 0.1});
    all.push_back(
        {"tiles, documents, causal", 193, 1, false, 4, 1, 40, causal, 0, -1, -1, {0, 1, 64, 70, 150, 193}, 0.2});
    all.push_back({"tiles, window", 260, 1, false, 1, 1, 33, none, 0, 5, 9, {}, 0.0});
    return all;
}
// Several tiles of queries a task, and several runs of tiles of keys.
std::vector<AttentionCase> fused_cases() {
    std::vector<AttentionCase> all = cases();
    all.push_back({"several tiles a task, documents, dropout",
                   500,
                   1,
                   false,
                   4,
                   2,
                   16,
                   MDLM_MASK_CAUSAL,
                   0,
                   -1,
                   -1,
                   {0, 100, 390, 500},
                   0.1});
    all.push_back({"several runs of keys", 470, 1, false, 4, 2, 16, MDLM_MASK_NO_MASK, 0, -1, -1, {}, 0.0});
    if (slow()) return all;  // the last takes as long as all others
    all.push_back({"several runs of keys, window", 860, 1, false, 2, 1, 8, MDLM_MASK_NO_MASK, 0, 130, 290, {}, 0.1});
    return all;
}

// Heads inside one packed buffer, as linear_qkv writes it.
Heads packed(void *base, DType type, const AttentionCase &t, int64_t slot) {
    return {static_cast<char *>(base) + slot * t.d * size_of(type), (t.heads + 2 * t.groups) * t.d,
            (t.heads / t.groups + 2) * t.d, t.d};
}
Heads alone(void *base, int64_t groups, int64_t per_group, int64_t d) {
    return {base, groups * per_group * d, per_group * d, d};
}

struct Given {
    DType type;
    AttentionCase test;
    Documents docs;
    Attention shape;
    int64_t rows, per_group, width, squares;
    KernelSize size;
    Given(DType t, const AttentionCase &c)
        : type(t), test(c), docs(test.documents), shape(test.shape(t, docs)), rows(c.seq * c.batch),
          per_group(c.heads / c.groups), width((c.heads + 2 * c.groups) * c.d),
          squares(c.batch * c.heads * c.seq * c.seq), size(test.size(t)) {}
    Given(const Given &) = delete;
    Heads part(void *qkv, int64_t slot) const { return packed(qkv, type, test, slot); }
    Heads context(void *base) const { return alone(base, test.groups, per_group, test.d); }
    int64_t context_count() const { return rows * test.heads * test.d; }
    // The statistics.
    std::pair<float *, float *> forward(Run &r, Device &device, void *qkv, void *context) const {
        const auto statistic = [&](uint64_t seed) {
            return static_cast<float *>(r.in(DType::f32, rows * test.heads, seed));
        };
        float *row_max = statistic(5), *inverse_sum = statistic(6);
        device.run(AttentionForward{shape, part(qkv, 0), part(qkv, per_group), part(qkv, per_group + 1),
                                    this->context(context), row_max, inverse_sum,
                                    r.scratch(device, Kernel::attention_forward, size)});
        return {row_max, inverse_sum};
    }
    // Probabilities of random scores, the same for all devices.
    void *probabilities(Run &r) const {
        void *p = r.in(type, squares, 21, 2.0);
        r.reference.run(AttnSoftmax{shape, p, p});
        return p;
    }
};

}  // namespace

TEST_CASE("cpu: fused attention") {
    Devices devices;
    for (const DType type : {DType::f32, DType::bf16}) {
        int64_t number = 0;
        for (const AttentionCase &test : fused_cases()) {
            if (left_out(number++, type)) continue;
            const Given g(type, test);
            const int64_t pg = g.per_group;
            check_case(devices, std::string("forward: ") + test.name, [&](Run &r) {
                void *qkv = r.in(type, g.rows * g.width, 1), *context = r.out(type, g.context_count());
                const auto [row_max, inverse_sum] = g.forward(r, r.device, qkv, context);
                // Both devices' statistics say the same in their own units.
                auto *log_sum = static_cast<float *>(r.out(DType::f32, g.rows * test.heads));
                const double unit = &r.device == &r.reference ? 1.0 : std::numbers::ln2;
                for (int64_t i = 0; i < g.rows * test.heads; ++i)
                    log_sum[i] = float(unit * double(row_max[i]) - std::log(double(inverse_sum[i])));
            });
            check_case(devices, std::string("backward: ") + test.name, [&](Run &r) {
                void *qkv = r.in(type, g.rows * g.width, 1), *dcontext = r.in(type, g.context_count(), 2);
                void *context = r.in(type, g.context_count(), 3), *d_qkv = r.out(type, g.rows * g.width);
                const auto [row_max, inverse_sum] = g.forward(r, r.device, qkv, r.in(type, g.context_count(), 4));
                g.forward(r, r.reference, qkv, context);  // bf16: the same roundings for all
                r.device.run(AttentionBackward{g.shape, g.part(qkv, 0), g.part(qkv, pg), g.part(qkv, pg + 1),
                                               g.context(context), g.context(dcontext), row_max, inverse_sum,
                                               g.part(d_qkv, 0), g.part(d_qkv, pg), g.part(d_qkv, pg + 1),
                                               r.scratch(Kernel::attention_backward, g.size)});
            });
        }
    }
}

TEST_CASE("cpu: attention in steps") {
    Devices devices;
    for (const DType type : {DType::f32, DType::bf16}) {
        int64_t number = 0;
        for (const AttentionCase &test : cases()) {
            if (left_out(number++, type)) continue;
            const Given g(type, test);
            const int64_t pg = g.per_group;
            const auto check = [&](const char *what, const Case &body) {
                check_case(devices, std::string(what) + ": " + test.name, body);
            };
            check("scores", [&](Run &r) {
                void *qkv = r.in(type, g.rows * g.width, 1);
                r.device.run(AttnScores{g.shape, g.part(qkv, 0), g.part(qkv, pg), r.out(type, g.squares)});
            });
            check("softmax", [&](Run &r) {
                r.device.run(AttnSoftmax{g.shape, r.in(type, g.squares, 1, 3.0), r.out(type, g.squares)});
            });
            check("softmax in place", [&](Run &r) {
                void *p = r.both(type, g.squares, 1);
                r.device.run(AttnSoftmax{g.shape, p, p});
            });
            check("context", [&](Run &r) {
                void *qkv = r.in(type, g.rows * g.width, 1), *p = g.probabilities(r);
                r.device.run(AttnContext{g.shape, p, g.part(qkv, pg + 1), g.context(r.out(type, g.context_count()))});
            });
            for (const int wanted : {1, 2, 3})
                check("context backward", [&](Run &r) {
                    void *qkv = r.in(type, g.rows * g.width, 1), *p = g.probabilities(r),
                         *dcontext = r.in(type, g.context_count(), 2);
                    void *dp = (wanted & 1) != 0 ? r.out(type, g.squares) : nullptr;
                    void *dv = (wanted & 2) != 0 ? r.out(type, g.rows * test.groups * test.d) : nullptr;
                    r.device.run(AttnContextBackward{g.shape, p, g.part(qkv, pg + 1), g.context(dcontext), dp,
                                                     alone(dv, test.groups, 1, test.d),
                                                     r.scratch(Kernel::attn_context_backward, g.size)});
                });
            for (const bool in_place : {false, true})
                check("softmax backward", [&](Run &r) {
                    void *p = g.probabilities(r),
                         *dp = in_place ? r.both(type, g.squares, 2) : r.in(type, g.squares, 2);
                    r.device.run(AttnSoftmaxBackward{g.shape, p, dp, in_place ? dp : r.out(type, g.squares)});
                });
            check("scores backward", [&](Run &r) {
                void *qkv = r.in(type, g.rows * g.width, 1), *p = g.probabilities(r), *ds = r.in(type, g.squares, 2);
                r.reference.run(AttnSoftmaxBackward{g.shape, p, ds, ds});
                r.device.run(AttnScoresBackward{
                    g.shape, ds, g.part(qkv, 0), g.part(qkv, pg), g.context(r.out(type, g.context_count())),
                    alone(r.out(type, g.rows * test.groups * test.d), test.groups, 1, test.d),
                    r.scratch(Kernel::attn_scores_backward, g.size)});
            });
        }
    }
}

TEST_CASE("cpu: qk norm and rotary") {
    Devices devices;
    struct Shape {
        int64_t seq, batch;
        bool batch_first;
        int64_t heads, groups, d, rotary;
    };
    const Shape shapes[] = {{1, 1, false, 1, 1, 2, 2},
                            {9, 2, false, 4, 2, 6, 4},
                            {9, 2, true, 2, 2, 24, 24},
                            {70, 1, false, 3, 1, 70, 0},
                            {5, 1, false, 2, 1, 1200, 1100}};
    for (const DType type : {DType::f32, DType::bf16})
        for (const Shape &s : shapes)
            // Bits: norm, RMS, zero-centred (accumulate in the backward), interleaved.
            for (int kind = 0; kind < 16; ++kind) {
                if (left_out(kind + s.d / 2, type)) continue;
                const bool norm = (kind & 1) != 0, rms = (kind & 2) != 0, centered = (kind & 4) != 0,
                           interleaved = (kind & 8) != 0;
                const AttentionCase test{
                    "",
                    s.seq,
                    s.batch,
                    s.batch_first,
                    s.heads,
                    s.groups,
                    s.d,
                    MDLM_MASK_CAUSAL,
                    0,
                    -1,
                    -1,
                    s.batch == 1 && s.seq > 4 ? std::vector<int32_t>{0, 4, int32_t(s.seq)} : std::vector<int32_t>{},
                    0.0};
                const Given g(type, test);
                const int64_t pg = g.per_group, width = g.rows * g.width, of_q = g.rows * s.heads,
                              of_k = g.rows * s.groups;
                const auto make = [&](Run &r, bool forward) {
                    const auto parameter = [&](bool there, uint64_t seed) {
                        return there ? r.in(type, s.d, seed) : nullptr;
                    };
                    const auto statistic = [&](bool there, int64_t count, double middle) {
                        return !there    ? nullptr
                               : forward ? r.out(DType::f32, count)
                                         : r.in(DType::f32, count, 17, 0.5, middle);
                    };
                    void *qkv = r.in(type, width, 1), *out = forward ? r.out(type, width) : nullptr;
                    // The values' place stays as it is.
                    if (forward) std::memset(out, 0, size_t(width * size_of(type)));
                    QkNormRope a{type,
                                 {s.seq, s.batch, s.batch_first},
                                 g.shape.mask,
                                 s.heads,
                                 s.groups,
                                 s.d,
                                 s.rotary,
                                 interleaved,
                                 r.in(DType::f32, s.seq * s.rotary / 2, 2),
                                 r.in(DType::f32, s.seq * s.rotary / 2, 3),
                                 norm,
                                 rms,
                                 centered,
                                 1e-5,
                                 parameter(norm, 4),
                                 parameter(norm && !rms, 5),
                                 parameter(norm, 6),
                                 parameter(norm && !rms, 7),
                                 g.part(qkv, 0),
                                 g.part(qkv, pg),
                                 {},
                                 {},
                                 nullptr,
                                 nullptr,
                                 nullptr,
                                 nullptr};
                    if (forward) a.q_out = g.part(out, 0), a.k_out = g.part(out, pg);
                    a.q_rstd = statistic(norm, of_q, 1.5), a.k_rstd = statistic(norm, of_k, 1.5);
                    a.q_mean = statistic(norm && !rms, of_q, 0.0), a.k_mean = statistic(norm && !rms, of_k, 0.0);
                    if (!norm && !forward) a.q = a.k = {};
                    return a;
                };
                const std::string name = std::string(name_of(type))
                                             .append(" d ")
                                             .append(std::to_string(s.d))
                                             .append(" kind ")
                                             .append(std::to_string(kind));
                check_case(devices, "forward " + name, [&](Run &r) { r.device.run(make(r, true)); });
                check_case(devices, "backward " + name, [&](Run &r) {
                    void *to = r.out(type, width), *from = r.in(type, width, 9);
                    std::memset(to, 0, size_t(width * size_of(type)));
                    const auto gradient = [&](bool there, uint64_t seed) {
                        return !there ? nullptr : centered ? r.both(DType::f32, s.d, seed) : r.out(DType::f32, s.d);
                    };
                    QkNormRopeBackward b{make(r, false),
                                         g.part(from, 0),
                                         g.part(from, pg),
                                         g.part(to, 0),
                                         g.part(to, pg),
                                         gradient(norm, 11),
                                         gradient(norm && !rms, 12),
                                         gradient(norm && !interleaved, 13),
                                         gradient(norm && !rms, 14),
                                         centered,
                                         r.scratch(Kernel::qk_norm_rope_backward, g.size)};
                    r.device.run(b);
                });
            }
}

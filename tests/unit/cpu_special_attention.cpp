// SPDX-License-Identifier: Apache-2.0
// As cpu_special.cpp, for attention, fused and in steps: one NaN, infinity, huge or tiny number in one input of a
// kernel, whose mask hides it from some tokens.
#include "unit/cpu_case.hpp"

#include <limits>

#include "support/attention_cases.hpp"

using namespace mdlm;
using namespace mdlm_test;

namespace {

std::vector<double> specials() {
    constexpr double not_a_number = std::numeric_limits<double>::quiet_NaN(),
                     infinity = std::numeric_limits<double>::infinity();
    if (slow()) return {not_a_number, infinity, -1e37, -1e-42};
    return {not_a_number, infinity, -infinity, 1e37, -1e37, 1.2e-38, -1e-42};
}
// Inputs are about 1 but for the special one; gradients of scores, differences of such numbers, meet it in products.
constexpr double part = 2e-5, floor_of_sums = 1e-4, of_products = 1e-6;

struct Shape {
    AttentionCase test;
    DType type;
    Documents docs;
    Attention shape;
    Packed packed;
    int64_t rows, count, squares, context_count;
    KernelSize size;
    Shape(DType t, AttentionCase c)
        : test(std::move(c)), type(t), docs(test.documents), shape(test.shape(t, docs)), packed(test.packed()),
          rows(test.seq * test.batch), count(rows * packed.width()),
          squares(test.batch * test.heads * test.seq * test.seq), context_count(rows * test.heads * test.d),
          size(test.size(t)) {}
    Shape(const Shape &) = delete;
    Heads slot(void *base, int64_t n) const {
        return {static_cast<char *>(base) + n * test.d * size_of(type), packed.width(),
                (packed.per_group() + 2) * test.d, test.d};
    }
    Heads q(void *base) const { return slot(base, 0); }
    Heads k(void *base) const { return slot(base, packed.per_group()); }
    Heads v(void *base) const { return slot(base, packed.per_group() + 1); }
    Heads context(void *base) const { return {base, test.heads * test.d, packed.per_group() * test.d, test.d}; }
    // Kinds of head in qkv: where the special value of one stands, in the middle of the tokens and not at the edge of a
    // head.
    int64_t at(int64_t kind) const {
        return rows / 2 * packed.width() + (kind == 0 ? 0 : packed.per_group() + kind - 1) * test.d + test.d / 2;
    }
};

std::vector<AttentionCase> cases() {
    const auto none = MDLM_MASK_NO_MASK, causal = MDLM_MASK_CAUSAL;
    return {{"no mask", 9, 1, false, 2, 1, 6, none, 0, -1, -1, {}, 0.0},
            {"causal, grouped, tiles", 51, 1, false, 2, 1, 8, causal, 0, -1, -1, {}, 0.0},
            {"window", 50, 1, false, 1, 1, 9, none, 0, 5, 3, {}, 0.0},
            {"documents, dropout", 50, 1, false, 1, 1, 6, none, 0, -1, -1, {0, 20, 40, 50}, 0.2}};
}

// body(run, where to put what): `kinds` inputs take turns.
template <class Body>
void each(const char *kernel, int64_t kinds, const Body &body) {
    static Devices devices;
    for (const DType type : {DType::f32, DType::bf16})
        for (const AttentionCase &test : cases()) {
            const Shape s(type, test);
            for (int64_t kind = 0; kind < kinds; ++kind)
                for (const double value : specials())
                    check_case(
                        devices,
                        std::string(kernel) + ", " + test.name + ", " + name_of(type) + ", input " +
                            std::to_string(kind) + " has " + std::to_string(value),
                        [&](Run &r) { body(r, s, kind, value); },
                        [&](Block &seen, Block &expected) {
                            const double product = std::isfinite(value) ? of_products * std::fabs(value) : 0.0;
                            check_rows(seen, expected, part, std::max(floor_of_sums, product));
                        });
        }
}
void *qkv_of(Run &r, const Shape &s, int64_t kind, double value) {
    void *qkv = r.in(s.type, s.count, 1);
    if (kind < 3) store(s.type, qkv, s.at(kind), value);
    return qkv;
}
void *dcontext_of(Run &r, const Shape &s, bool special, double value) {
    void *p = r.in(s.type, s.context_count, 2);
    if (special) store(s.type, p, s.context_count / 2, value);
    return p;
}

}  // namespace

TEST_CASE("cpu special: fused attention forward") {
    each("forward", 3, [](Run &r, const Shape &s, int64_t kind, double value) {
        void *qkv = qkv_of(r, s, kind, value), *row_max = r.in(DType::f32, s.rows * s.test.heads, 5),
             *sum = r.in(DType::f32, s.rows * s.test.heads, 6);
        r.device.run(AttentionForward{s.shape, s.q(qkv), s.k(qkv), s.v(qkv),
                                      s.context(r.out(s.type, s.context_count, s.test.d)), row_max, sum,
                                      r.scratch(Kernel::attention_forward, s.size)});
    });
}

TEST_CASE("cpu special: fused attention backward") {
    each("backward", 4, [](Run &r, const Shape &s, int64_t kind, double value) {
        void *qkv = qkv_of(r, s, kind, value), *dcontext = dcontext_of(r, s, kind == 3, value),
             *context = r.in(s.type, s.context_count, 3);
        void *row_max = r.in(DType::f32, s.rows * s.test.heads, 5), *sum = r.in(DType::f32, s.rows * s.test.heads, 6);
        r.device.run(AttentionForward{s.shape, s.q(qkv), s.k(qkv), s.v(qkv), s.context(context), row_max, sum,
                                      r.scratch(Kernel::attention_forward, s.size)});
        void *to = r.out(s.type, s.count, s.test.d);
        r.device.run(AttentionBackward{s.shape, s.q(qkv), s.k(qkv), s.v(qkv), s.context(context), s.context(dcontext),
                                       row_max, sum, s.q(to), s.k(to), s.v(to),
                                       r.scratch(Kernel::attention_backward, s.size)});
    });
}

TEST_CASE("cpu special: attention in steps") {
    each("steps", 4, [](Run &r, const Shape &s, int64_t kind, double value) {
        void *qkv = qkv_of(r, s, kind, value), *dcontext = dcontext_of(r, s, kind == 3, value);
        void *p = r.in(s.type, s.squares, 7), *dp = r.in(s.type, s.squares, 8);
        r.device.run(AttnScores{s.shape, s.q(qkv), s.k(qkv), p});
        r.device.run(AttnSoftmax{s.shape, p, p});
        r.device.run(AttnContext{s.shape, p, s.v(qkv), s.context(r.out(s.type, s.context_count, s.test.d))});
        void *to = r.out(s.type, s.count, s.test.d);
        r.device.run(AttnContextBackward{s.shape, p, s.v(qkv), s.context(dcontext), dp, s.v(to),
                                         r.scratch(Kernel::attn_context_backward, s.size)});
        r.device.run(AttnSoftmaxBackward{s.shape, p, dp, dp});
        r.device.run(AttnScoresBackward{s.shape, dp, s.q(qkv), s.k(qkv), s.q(to), s.k(to),
                                        r.scratch(Kernel::attn_scores_backward, s.size)});
    });
}

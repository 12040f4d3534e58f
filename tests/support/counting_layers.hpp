// SPDX-License-Identifier: Apache-2.0
// Programs of ops that only count: for the search over what a layer may keep.
#pragma once
#include <memory>
#include <string>
#include <vector>

#include "layer/derivative.hpp"

namespace keep_test {

using mdlm::BufferId;
using mdlm::no_buffer;

struct CountingOp final : mdlm::Op {
    int64_t nanoseconds = 1, scratch_bytes = 0;
    bool over = false;
    const char *name() const override { return "counting"; }
    void run(const mdlm::Call &) const override {}
    mdlm::Cost cost(mdlm::Extent) const override {
        mdlm::Cost c;
        c.flops = c.done = nanoseconds;
        return c;
    }
    std::vector<int32_t> in_place() const override { return over ? std::vector<int32_t>{0} : std::vector<int32_t>{}; }
    int64_t scratch(mdlm::Extent) const override { return scratch_bytes; }
};

// A layer in the making. Backward ops are given with the buffers that they read.
class Layer {
public:
    explicit Layer(int64_t granules) { p_.input = p_.output = buffer("input", granules); }
    BufferId input() const { return p_.input; }
    BufferId buffer(const std::string &name, int64_t granules, BufferId main = no_buffer) {
        const auto id = static_cast<BufferId>(p_.buffers.size());
        mdlm::Buffer b;
        b.name = name, b.dtype = mdlm::DType::f32, b.fixed = granules * 64, b.main = main == no_buffer ? id : main;
        p_.buffers.push_back(b);
        return id;
    }
    void always_keep(BufferId b) { p_.buffers[b].always_kept = true; }
    // The backward of the op reads these forward buffers.
    void op(std::vector<BufferId> in, std::vector<BufferId> out, int64_t ns, std::vector<BufferId> reads,
            int64_t scratch_bytes = 0, bool over = false, bool backward_over = false) {
        auto o = std::make_unique<CountingOp>();
        o->in = std::move(in), o->out = std::move(out), o->nanoseconds = ns, o->scratch_bytes = scratch_bytes,
        o->over = over;
        p_.ops.push_back(std::move(o));
        reads_.push_back(std::move(reads)), backward_over_.push_back(backward_over);
    }
    const mdlm::Program &program() const { return p_; }
    std::shared_ptr<const mdlm::Differentiated> take(BufferId output) {
        p_.output = output;
        auto d = std::make_shared<mdlm::Differentiated>();
        d->buffers = p_.buffers;
        std::vector<BufferId> gradient(p_.buffers.size(), no_buffer);
        const auto make = [&](BufferId b) {
            if (gradient[b] != no_buffer) return;
            gradient[b] = static_cast<BufferId>(d->buffers.size());
            mdlm::Buffer g = p_.buffers[b];
            g.name += ".gradient", g.main = gradient[b];
            d->buffers.push_back(g);
        };
        make(output);
        d->output_gradient = gradient[output];
        for (size_t i = p_.ops.size(); i-- > 0;) {
            const mdlm::Op &forward = *p_.ops[i];
            auto o = std::make_unique<CountingOp>();
            for (BufferId b : forward.out)
                if (gradient[b] != no_buffer) o->in.push_back(gradient[b]);
            for (BufferId b : reads_[i]) o->in.push_back(b);
            for (BufferId b : forward.in) make(b), o->out.push_back(gradient[b]);
            o->nanoseconds = 2 * static_cast<const CountingOp &>(forward).nanoseconds;
            o->scratch_bytes = static_cast<const CountingOp &>(forward).scratch_bytes;
            o->over = backward_over_[i] && !o->in.empty() && o->in[0] == gradient[forward.out[0]];
            d->backward.push_back(std::move(o)), d->backward_of.push_back(static_cast<int32_t>(i));
        }
        if (gradient[p_.input] != no_buffer) d->input_gradient = gradient[p_.input];
        d->program = std::make_shared<const mdlm::Program>(std::move(p_));
        d->read.assign(d->buffers.size(), 0);
        for (const auto &o : d->backward)
            for (BufferId b : o->in) d->read[b] = 1;
        return d;
    }

private:
    mdlm::Program p_;
    std::vector<std::vector<BufferId>> reads_;
    std::vector<char> backward_over_;
};

// A transformer layer as FP8 makes it: the input of each linear has a quantized twin with its scale, which is what the
// linear and its backward read. 20 choices.
inline std::shared_ptr<const mdlm::Differentiated> fp8_layer(int64_t n = 64) {
    Layer l(2 * n);
    const auto quantized = [&](const std::string &name, BufferId x, int64_t granules) {
        const BufferId q = l.buffer(name + ".quantized", granules), scale = l.buffer(name + ".scale", 1);
        l.op({x}, {q, scale}, granules / 2 + 3, {});
        return std::pair{q, scale};
    };
    const auto linear = [&](const std::string &name, BufferId x, int64_t in, int64_t out) {
        const auto [q, scale] = quantized(name, x, in);
        const BufferId y = l.buffer(name, 2 * out);
        l.op({q, scale}, {y}, in * out / 4 + 11, {q, scale}, out / 2 * 256);
        return y;
    };
    const auto norm = [&](const std::string &name, BufferId x) {
        const BufferId y = l.buffer(name, 2 * n), statistics = l.buffer(name + ".statistics", 2, y);
        l.op({x}, {y, statistics}, 3 * n + 5, {x, statistics}, 256, false, true);
        return y;
    };
    const auto add = [&](const std::string &name, BufferId a, BufferId b) {
        const BufferId y = l.buffer(name, 2 * n);
        l.op({a, b}, {y}, 4 * n + 2, {}, 0, true, true);
        return y;
    };
    const BufferId u1 = norm("norm1", l.input());
    const BufferId qkv = linear("qkv", u1, n, 3 * n);
    const BufferId rotated = l.buffer("rotated", 4 * n);
    l.op({qkv}, {rotated}, 7 * n, {qkv}, 0, false, true);
    const BufferId context = l.buffer("context", 2 * n), lse = l.buffer("lse", 8, context);
    l.op({rotated, qkv}, {context, lse}, 9 * n * 20, {rotated, qkv, context, lse}, 16 * 256);
    const BufferId proj = linear("proj", context, n, n);
    const BufferId x1 = add("x1", proj, l.input());
    const BufferId u2 = norm("norm2", x1);
    const BufferId fc1 = linear("fc1", u2, n, 6 * n);
    const BufferId act = l.buffer("act", 6 * n);
    l.op({fc1}, {act}, 10 * n, {fc1}, 0, false, true);
    const BufferId fc2 = linear("fc2", act, 3 * n, n);
    return l.take(add("output", fc2, x1));
}

// A layer with a router, tokens brought to `experts` experts of their own sizes, and their outputs brought back.
// 3 tensors an expert are choices, beside twelve.
inline std::shared_ptr<const mdlm::Differentiated> moe_layer(int64_t experts, int64_t n = 64) {
    Layer l(2 * n);
    const auto simple = [&](const std::string &name, std::vector<BufferId> in, int64_t granules, int64_t ns,
                            std::vector<BufferId> reads, int64_t scratch_bytes = 0) {
        const BufferId y = l.buffer(name, granules);
        l.op(std::move(in), {y}, ns, std::move(reads), scratch_bytes);
        return y;
    };
    const auto norm = [&](const std::string &name, BufferId x) {
        const BufferId y = l.buffer(name, 2 * n), statistics = l.buffer(name + ".statistics", 2, y);
        l.op({x}, {y, statistics}, 3 * n + 5, {x, statistics}, 256, false, true);
        return y;
    };
    const BufferId u1 = norm("norm1", l.input());
    const BufferId qkv = simple("qkv", {u1}, 6 * n, 3 * n * n / 4, {u1});
    const BufferId rotated = simple("rotated", {qkv}, 4 * n, 7 * n, {qkv});
    const BufferId context = l.buffer("context", 2 * n), lse = l.buffer("lse", 8, context);
    l.op({rotated, qkv}, {context, lse}, 9 * n * 20, {rotated, qkv, context, lse}, 16 * 256);
    const BufferId proj = simple("proj", {context}, 2 * n, n * n / 4, {context});
    const BufferId x1 = simple("x1", {proj, l.input()}, 2 * n, 4 * n, {});
    const BufferId u2 = norm("norm2", x1);
    const BufferId logits = simple("logits", {u2}, n / 4, n * n / 64, {u2});
    const BufferId weights = l.buffer("weights", n / 8), places = l.buffer("places", n / 16);
    l.op({logits}, {weights, places}, n + 9, {weights, places});
    const BufferId permuted = simple("permuted", {u2, places}, 4 * n, 8 * n, {places});
    std::vector<BufferId> outputs;
    for (int64_t e = 0; e < experts; ++e) {
        const std::string name = "expert" + std::to_string(e);
        const int64_t tokens = n * (7 + e * 5 % 11) / 10 * 8 / experts;
        const BufferId fc1 = simple(name + ".fc1", {permuted}, 2 * tokens, tokens * n / 5 + e, {permuted});
        const BufferId act = simple(name + ".act", {fc1}, tokens, 3 * tokens, {fc1});
        outputs.push_back(simple(name + ".fc2", {act}, tokens, tokens * n / 11 + 2 * e, {act}));
    }
    std::vector<BufferId> in = outputs;
    in.push_back(weights), in.push_back(places);
    const BufferId back = simple("unpermuted", in, 2 * n, 8 * n, in);
    const BufferId y = l.buffer("output", 2 * n);
    l.op({back, x1}, {y}, 4 * n, {}, 0, true, true);
    return l.take(y);
}

}  // namespace keep_test

// SPDX-License-Identifier: Apache-2.0
// Programs that no config makes: what would go wrong in them without a word is right, or refused with INTERNAL.
#include <doctest/doctest.h>

#include <cstring>
#include <functional>
#include <string>
#include <vector>

#include "block/block.hpp"
#include "layer/derivative.hpp"
#include "op/attention.hpp"
#include "op/bias_dropout_add.hpp"
#include "op/linear.hpp"
#include "op/norm.hpp"
#include "support/wrapped_device.hpp"

using namespace mdlm;

namespace {

constexpr int64_t width = 8, heads = 2, head = width / heads;

struct Maker {
    Program p;
    Maker() { p.input = buffer("input", width); }
    BufferId buffer(const char *name, int64_t per_token) {
        const auto id = static_cast<BufferId>(p.buffers.size());
        p.buffers.push_back({name, DType::f32, per_token, 0, 1, id});
        return id;
    }
    void emit(std::unique_ptr<Op> op, std::vector<ParamId> params = {}) {
        op->params = std::move(params);
        p.ops.push_back(std::move(op));
    }
    BufferId linear(const char *name, BufferId x, int64_t n) {
        const auto id = static_cast<ParamId>(p.params.size());
        Param w;
        w.name = std::string(name) + ".weight", w.full[0] = n, w.full[1] = p.buffers[x].per_token, w.ndim = 2;
        p.params.push_back(w);
        LinearSpec s;
        s.n = n, s.k = p.buffers[x].per_token, s.weight = id;
        const BufferId y = buffer(name, n);
        emit(make_linear(s, x, y), {id});
        return y;
    }
    BufferId sum(const char *name, BufferId a, BufferId b) {
        BiasDropoutAddSpec s;
        s.width = p.buffers[a].per_token;
        const BufferId y = buffer(name, s.width);
        emit(make_bias_dropout_add(s, a, b, y));
        return y;
    }
    static AttentionSpec attention_spec(int64_t row, int64_t q, int64_t k, int64_t v) {
        AttentionSpec s;
        s.heads = s.groups = s.all_heads = heads, s.d = head, s.scale = 0.5;
        s.q = {q, row, head, head}, s.k = {k, row, head, head}, s.v = {v, row, head, head};
        s.context = {0, width, head, head};
        return s;
    }
    BufferId attention(const char *name, const AttentionSpec &s, BufferId q, BufferId k, BufferId v) {
        const BufferId context = buffer(name, width), statistics = buffer("statistics", 4 * heads);
        p.buffers[statistics].main = context;
        emit(make_fused_attention(s, q, k, v, context, statistics));
        return context;
    }
    std::shared_ptr<const Program> take(BufferId output) {
        p.output = output;
        return std::make_shared<const Program>(std::move(p));
    }
};

mdlm_status status_of(const std::function<void()> &f, const char *word) {
    try {
        f();
    } catch (const Error &e) {
        CHECK_MESSAGE(std::strstr(e.what(), word) != nullptr, e.what());
        return e.status();
    }
    return MDLM_OK;
}

// Gradients of all parameters, by running forward and backward with every buffer a place of its own. Empty for those
// that are frozen.
std::vector<std::vector<float>> gradients(const std::shared_ptr<const Program> &program,
                                          const std::vector<char> &trains, bool input) {
    const auto d = differentiate(program, trains, input);
    const auto device = make_reference_device();
    Group group(make_self_comm(), nullptr, nullptr, 1000);
    RunState state;
    state.tokens = {5, 2, false};
    state.mask.type = MDLM_MASK_CAUSAL, state.mask.seq = 5;
    state.accumulate = false;
    const auto number = [](size_t seed, size_t i) {
        return static_cast<float>(static_cast<int>((seed * 31 + i * 17) % 23) - 11) / 8;
    };
    std::vector<std::vector<float>> buffers, params, grads;
    for (const mdlm::Buffer &b : d->buffers)
        buffers.emplace_back(static_cast<size_t>(b.bytes(state.extent())) / sizeof(float), -77.0f);
    std::vector<const void *> param_at;
    std::vector<void *> grad_at;
    for (const Param &p : program->params) {
        const auto n = static_cast<size_t>(p.full[0] * p.full[1]);
        params.emplace_back(n), grads.emplace_back(trains[params.size() - 1] ? n : 0);
        for (size_t i = 0; i < n; ++i) params.back()[i] = number(params.size(), i) / 4;
    }
    for (size_t i = 0; i < params.size(); ++i) param_at.push_back(params[i].data()), grad_at.push_back(grads[i].data());
    state.params = param_at.data(), state.grads = grad_at.data();
    for (size_t i = 0; i < buffers[program->input].size(); ++i) buffers[program->input][i] = number(90, i);
    if (d->output_gradient != no_buffer)
        for (size_t i = 0; i < buffers[d->output_gradient].size(); ++i) buffers[d->output_gradient][i] = number(91, i);
    for (const auto *ops : {&program->ops, &d->backward})
        for (const auto &op : *ops) {
            std::vector<void *> in, out;
            for (BufferId b : op->in) in.push_back(buffers[b].data());
            for (BufferId b : op->out) out.push_back(buffers[b].data());
            std::vector<double> workspace(
                static_cast<size_t>(op->workspace(device->traits(), state.extent())) / sizeof(double) + 8);
            op->run({*device, group, state, in.data(), out.data(), workspace.data()});
        }
    return grads;
}

// One layer as `layer`, and a final norm over its output.
BlockPlanInput block_of(std::shared_ptr<const Program> layer, int64_t norm_width, BufferId *norm_input = nullptr) {
    Maker m;
    m.p.buffers[m.p.input].per_token = norm_width;
    NormSpec s;
    s.width = norm_width, s.rms = true, s.epsilon = 1e-5;
    Param weight;
    weight.name = "weight", weight.full[0] = norm_width;
    m.p.params.push_back(weight);
    s.weight = 0;
    const BufferId y = m.buffer("output", norm_width), stats = m.buffer("stats", 1);
    m.p.buffers[stats].main = m.p.input;
    m.emit(make_norm(s, m.p.input, y, stats), {0});
    if (norm_input != nullptr) *norm_input = m.p.input;
    BlockPlanInput in;
    in.chain.list = {{std::move(layer), "", "layers.0.", 0, true, true}, {m.take(y), "final norm", "", 1}};
    for (int64_t i = 0; i < in.chain.items(); ++i) {
        const Program &p = in.chain.of(i);
        in.trains.emplace_back(p.params.size(), 1);
        in.policies.items.emplace_back(p.buffers.size(), Storage::keep);
        in.policies.units.push_back({i, 1});
    }
    in.traits = traits_of(MDLM_DEVICE_REFERENCE, 1);
    in.bound = {1000, 1000};
    return in;
}

}  // namespace

TEST_CASE("odd programs: attention of which only some inputs want a gradient") {
    for (const bool fused : {true, false}) {
        Maker m;
        const BufferId q = m.linear("q", m.p.input, width), k = m.linear("k", m.p.input, width),
                       v = m.linear("v", m.p.input, width);
        const AttentionSpec s = Maker::attention_spec(width, 0, 0, 0);
        BufferId context = no_buffer;
        if (fused) {
            context = m.attention("context", s, q, k, v);
        } else {
            const BufferId scores = m.buffer("scores", 0), probabilities = m.buffer("probabilities", 0);
            m.p.buffers[scores].per_pair = m.p.buffers[probabilities].per_pair = heads;
            context = m.buffer("context", width);
            m.emit(make_attention_scores(s, q, k, scores));
            m.emit(make_attention_softmax(s, scores, probabilities));
            m.emit(make_attention_context(s, probabilities, v, context));
        }
        const auto program = m.take(context);
        const auto all = gradients(program, {1, 1, 1}, false);
        for (int trained = 1; trained < 8; ++trained) {
            CAPTURE(fused);
            CAPTURE(trained);
            const std::vector<char> trains = {char(trained & 1), char(trained >> 1 & 1), char(trained >> 2 & 1)};
            const auto some = gradients(program, trains, false);
            for (size_t i = 0; i < 3; ++i)
                if (trains[i]) CHECK(some[i] == all[i]);
        }
    }
}

TEST_CASE("odd programs: boundaries of several sizes") {
    Maker wide;
    const BufferId y = wide.linear("output", wide.p.input, 8 * width);
    const auto layer = wide.take(y);
    const auto plan = make_block_plan(block_of(layer, 8 * width));
    const int64_t boundary = 1000 * 8 * width * 4;
    CHECK(plan->fixed_bytes >= boundary);  // a slot for the gradient of the larger one
    for (const auto *list : {&plan->forward, &plan->backward})
        for (const PlanEntry &e : *list)
            for (const Place *p : {&e.x, &e.y, &e.dy, &e.dx})
                if (p->kind == Place::Kind::fixed) CHECK(p->offset + boundary <= plan->fixed_bytes);
    CHECK(status_of([&] { make_block_plan(block_of(layer, width)); }, "layer 0 makes an output") ==
          MDLM_ERROR_INTERNAL);
}

TEST_CASE("odd programs: whatever runs is prepared, in the final norm's place too") {
    struct Listening final : mdlm_test::WrappedDevice {
        using WrappedDevice::WrappedDevice;
        void prepare(Kernel kernel, const KernelSize &size) override {
            if (kernel == Kernel::linear_forward) widths.push_back(size.n);
        }
        std::vector<int64_t> widths;
    } device(make_reference_device());
    Maker a, b;
    const BufferId out_a = a.linear("output", a.p.input, width), out_b = b.linear("output", b.p.input, 3 * width);
    BlockPlanInput in = block_of(a.take(out_a), width);
    in.chain.list[1].program = b.take(out_b);
    in.policies.items[1].assign(in.chain.of(1).buffers.size(), Storage::keep);
    const auto plan = make_block_plan(std::move(in));
    prepare_ops(device, *plan, {10, 10});
    CHECK(device.widths == std::vector<int64_t>{width, 3 * width});
}

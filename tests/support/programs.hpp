// SPDX-License-Identifier: Apache-2.0
// Programs that no config makes, written down buffer by buffer, and run with every buffer in memory of its own: what a
// program computes when no policy, schedule or layout has a say.
#pragma once
#include <cstring>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "layer/derivative.hpp"
#include "op/activation.hpp"
#include "op/attention.hpp"
#include "op/bias_dropout_add.hpp"
#include "op/linear.hpp"
#include "op/norm.hpp"

namespace mdlm_test {

struct ProgramMaker {
    mdlm::Program p;
    mdlm::DType dtype;
    explicit ProgramMaker(int64_t width, mdlm::DType type = mdlm::DType::f32) : dtype(type) {
        p.input = buffer("input", width);
    }
    mdlm::BufferId buffer(const std::string &name, int64_t per_token, int64_t per_pair = 0) {
        const auto id = static_cast<mdlm::BufferId>(p.buffers.size());
        p.buffers.push_back({name, dtype, per_token, per_pair, 1, id});
        return id;
    }
    mdlm::BufferId statistics(mdlm::BufferId of, int64_t per_token) {
        const mdlm::BufferId id = buffer(p.buffers[of].name + ".statistics", per_token);
        p.buffers[id].main = of, p.buffers[id].dtype = mdlm::wide(dtype);
        return id;
    }
    mdlm::ParamId param(const std::string &name, int64_t rows, int64_t columns = 0) {
        mdlm::Param w;
        w.name = name, w.full[0] = rows, w.full[1] = columns > 0 ? columns : 1, w.ndim = columns > 0 ? 2 : 1;
        p.params.push_back(w);
        return static_cast<mdlm::ParamId>(p.params.size() - 1);
    }
    void emit(std::unique_ptr<mdlm::Op> op, std::vector<mdlm::ParamId> params = {}) {
        for (const mdlm::ParamId id : params)
            if (id != mdlm::no_param) op->params.push_back(id);
        p.ops.push_back(std::move(op));
    }

    mdlm::BufferId linear(const std::string &name, mdlm::BufferId x, int64_t n, mdlm::ParamId weight = mdlm::no_param) {
        mdlm::LinearSpec s;
        s.dtype = dtype, s.n = n, s.k = p.buffers[x].per_token;
        s.weight = weight != mdlm::no_param ? weight : param(name + ".weight", n, s.k);
        const mdlm::BufferId y = buffer(name, n);
        emit(mdlm::make_linear(s, x, y), {s.weight});
        return y;
    }
    mdlm::BufferId sum(const std::string &name, mdlm::BufferId x, mdlm::BufferId residual, double dropout = 0.0) {
        mdlm::BiasDropoutAddSpec s;
        s.dtype = dtype, s.width = p.buffers[x].per_token, s.dropout = dropout;
        const mdlm::BufferId y = buffer(name, s.width);
        emit(mdlm::make_bias_dropout_add(s, x, residual, y));
        return y;
    }
    mdlm::BufferId norm(const std::string &name, mdlm::BufferId x, mdlm::ParamId weight = mdlm::no_param) {
        mdlm::NormSpec s;
        s.dtype = dtype, s.width = p.buffers[x].per_token, s.rms = true, s.epsilon = 1e-5;
        s.weight = weight != mdlm::no_param ? weight : param(name + ".weight", s.width);
        const mdlm::BufferId y = buffer(name, s.width);
        emit(mdlm::make_norm(s, x, y, statistics(y, 1)), {s.weight});
        return y;
    }
    mdlm::BufferId activation(const std::string &name, mdlm::BufferId x) {
        mdlm::ActivationSpec s;
        s.dtype = dtype, s.width = p.buffers[x].per_token;
        const mdlm::BufferId y = buffer(name, s.width);
        emit(mdlm::make_activation(s, x, y));
        return y;
    }
    // Heads of `d` channels; queries, keys and values begin at these columns of their buffers.
    struct HeadsAt {
        mdlm::BufferId buffer;
        int64_t column = 0;
    };
    mdlm::BufferId attention(const std::string &name, int64_t heads, int64_t d, HeadsAt q, HeadsAt k, HeadsAt v,
                             bool fused = true) {
        mdlm::AttentionSpec s;
        s.dtype = dtype, s.heads = s.groups = s.all_heads = heads, s.d = d, s.scale = 0.5;
        const auto at = [&](const HeadsAt &h) {
            return mdlm::HeadLayout{h.column, p.buffers[h.buffer].per_token, d, d};
        };
        s.q = at(q), s.k = at(k), s.v = at(v), s.context = {0, heads * d, d, d};
        if (fused) {
            const mdlm::BufferId context = buffer(name, heads * d);
            emit(mdlm::make_fused_attention(s, q.buffer, k.buffer, v.buffer, context, statistics(context, 2 * heads)));
            return context;
        }
        const mdlm::BufferId scores = buffer(name + ".scores", 0, heads);
        emit(mdlm::make_attention_scores(s, q.buffer, k.buffer, scores));
        const mdlm::BufferId probabilities = buffer(name + ".probabilities", 0, heads);
        emit(mdlm::make_attention_softmax(s, scores, probabilities));
        const mdlm::BufferId context = buffer(name, heads * d);
        emit(mdlm::make_attention_context(s, probabilities, v.buffer, context));
        return context;
    }
    std::shared_ptr<const mdlm::Program> take(mdlm::BufferId output) {
        p.output = output;
        return std::make_shared<const mdlm::Program>(std::move(p));
    }
};

// What a program's step is made of, and what it leaves. Bytes, of the buffers' dtypes.
struct ProgramStep {
    std::vector<std::vector<char>> params, grads;  // a frozen parameter's gradient is empty
    std::vector<char> x, y, dy, dx;
    mdlm::RunState state;

    ProgramStep(const mdlm::Program &program, mdlm::Tokens tokens) {
        state.tokens = tokens;
        state.mask.type = MDLM_MASK_CAUSAL, state.mask.seq = tokens.seq;
        static constexpr mdlm::DrawState drawn = {7, 3, 0};
        state.training = true, state.draw = &drawn;
        const auto fill = [&](std::vector<char> &to, mdlm::DType type, int64_t n, uint64_t salt, double most) {
            to.resize(static_cast<size_t>(n * mdlm::size_of(type)));
            for (int64_t i = 0; i < n; ++i) {
                const auto word = static_cast<uint32_t>((salt * 7919 + static_cast<uint64_t>(i)) * 2654435761u);
                mdlm::store(type, to.data(), i, most * (static_cast<double>(word >> 8) / 8388608.0 - 1.0));
            }
        };
        const auto elements = [&](mdlm::BufferId b) {
            return program.buffers[b].bytes(state.extent()) / mdlm::size_of(program.buffers[b].dtype);
        };
        const mdlm::DType type = program.buffers[program.input].dtype;
        fill(x, type, elements(program.input), 90, 1.0);
        fill(dy, program.buffers[program.output].dtype, elements(program.output), 91, 1.0);
        for (const mdlm::Param &p : program.params) {
            params.emplace_back();
            fill(params.back(), type, p.full[0] * p.full[1], params.size(), 0.7);
        }
    }
    // Addresses for state.params and state.grads, and gradients that hold what must not be read.
    void bind(const std::vector<char> &trains, bool accumulate) {
        param_at.clear(), grad_at.clear(), grads.resize(params.size());
        for (size_t i = 0; i < params.size(); ++i) {
            const size_t wide = params[i].size() / static_cast<size_t>(size_of_param) * sizeof_wide;
            grads[i].assign(trains[i] ? wide : 0, accumulate ? 0 : 0x7f);
            param_at.push_back(params[i].data()), grad_at.push_back(grads[i].data());
        }
        state.params = param_at.data(), state.grads = grad_at.data(), state.accumulate = accumulate;
    }
    size_t size_of_param = 4, sizeof_wide = 4;
    std::vector<const void *> param_at;
    std::vector<void *> grad_at;
};

// Forward, and backward where the derivative has one, with every buffer a place of its own that holds NaN before it is
// written.
inline void run_apart(const mdlm::Differentiated &d, mdlm::Device &device, mdlm::Group &group, ProgramStep &step) {
    const mdlm::Program &program = *d.program;
    const mdlm::Extent extent = step.state.extent();
    std::vector<std::vector<char>> buffers;
    for (const mdlm::Buffer &b : d.buffers) buffers.emplace_back(static_cast<size_t>(b.bytes(extent)), '\xff');
    buffers[program.input] = step.x;
    if (d.output_gradient != mdlm::no_buffer) buffers[d.output_gradient] = step.dy;
    for (const auto *ops : {&program.ops, &d.backward})
        for (const auto &op : *ops) {
            std::vector<void *> in, out;
            for (mdlm::BufferId b : op->in) in.push_back(buffers[b].data());
            for (mdlm::BufferId b : op->out) out.push_back(buffers[b].data());
            std::vector<char> workspace(static_cast<size_t>(op->workspace(device.traits(), extent)) + 64, '\xff');
            auto *at = workspace.data();
            at += (64 - reinterpret_cast<uintptr_t>(at) % 64) % 64;
            op->run({device, group, step.state, in.data(), out.data(), at});
        }
    step.y = buffers[program.output];
    step.dx.clear();
    if (d.input_gradient != mdlm::no_buffer) step.dx = buffers[d.input_gradient];
}

}  // namespace mdlm_test

// SPDX-License-Identifier: Apache-2.0
#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <cstring>

#include "chain_items.hpp"

namespace mdlm_test::chain_items {
namespace {

using namespace mdlm;

// scale = 1 + the largest of a history of three; then what is largest in x joins it, while training.
struct HistoryOp final : Op {
    const char *name() const override { return "history"; }
    void run(const Call &c) const override {
        auto *history = static_cast<float *>(c.lasting(0));
        const auto *x = static_cast<const float *>(c.in[0]);
        *static_cast<float *>(c.out[0]) = 1.0f + *std::max_element(history, history + 3);
        if (!c.state.training) return;
        float most = 0;
        for (int64_t i = 0; i < c.state.tokens.rows() * 16; ++i) most = std::max(most, std::fabs(x[i]));
        history[0] = history[1], history[1] = history[2], history[2] = most / (1.0f + most);
    }
    Cost cost(Extent) const override { return {1, 8}; }
};

// y = x f, f one number or a whole number for each row: dx = dy f.
struct TimesOp final : Op {
    const char *name() const override { return "times"; }
    void run(const Call &c) const override {
        const auto *x = static_cast<const float *>(c.in[0]);
        auto *y = static_cast<float *>(c.out[0]);
        for (int64_t i = 0; i < c.state.tokens.rows() * width; ++i)
            y[i] = x[i] * (by_row ? 1.0f + 0.125f * static_cast<float>(static_cast<const int32_t *>(c.in[1])[i / width])
                                  : *static_cast<const float *>(c.in[1]));
    }
    Cost cost(Extent e) const override { return {e.tokens * width, 8 * e.tokens * width}; }
    std::vector<int32_t> in_place() const override { return {0}; }
    void differentiate(Derivative &d) const override {
        const BufferId dy = d.gradient(out[0]);
        if (dy == no_buffer || !d.wants(in[0])) return;
        auto op = std::make_unique<TimesOp>();
        op->width = width, op->by_row = by_row;
        op->in = {dy, in[1]}, op->out = {d.contribute(in[0]).to};
        d.emit(std::move(op));
    }
    int64_t width = 0;
    bool by_row = false;
};

BufferId times(ProgramMaker &m, const char *name, BufferId x, BufferId by, bool by_row) {
    auto op = std::make_unique<TimesOp>();
    op->width = m.p.buffers[x].per_token, op->by_row = by_row;
    const BufferId y = m.buffer(name, op->width);
    op->in = {x, by}, op->out = {y};
    m.emit(std::move(op));
    return y;
}

BufferId side(ProgramMaker &m, const char *name) {
    const BufferId b = m.buffer(name, 1);
    m.p.buffers[b].dtype = DType::i32;
    m.p.sides.push_back(b);
    return b;
}

}  // namespace

Program widening() {
    ProgramMaker m(8);
    m.p.output = m.activation("output", m.linear("fc", m.norm("norm", m.p.input), 16));
    return std::move(m.p);
}

Program middle(BufferId *scale, bool always_kept) {
    ProgramMaker m(16);
    const BufferId s = m.buffer("scale", 0);
    m.p.buffers[s].fixed = 1, m.p.buffers[s].always_kept = always_kept;
    m.p.states.push_back({"history", DType::f32, 3});
    auto op = std::make_unique<HistoryOp>();
    op->in = {m.p.input}, op->out = {s}, op->states = {0};
    m.emit(std::move(op));
    const BufferId scaled = times(m, "scaled", m.norm("norm", m.p.input), s, false);
    const BufferId fc = m.linear("fc", m.activation("act", m.linear("fc0", scaled, 20)), 16);
    m.p.output = m.sum("output", times(m, "placed", fc, side(m, "positions"), true), m.p.input);
    if (scale != nullptr) *scale = s;
    return std::move(m.p);
}

Program narrowing() {
    ProgramMaker m(16);
    const BufferId labelled = times(m, "labelled", m.norm("norm", m.p.input), side(m, "labels"), true);
    m.p.output = m.linear("output", labelled, 6);
    return std::move(m.p);
}

Item item_of(Program program) {
    Item item;
    item.program = std::make_shared<const Program>(std::move(program));
    item.by_settings = item.in_units = true;
    return item;
}

Chain make_items(size_t middles) {
    std::vector<Item> items = {item_of(widening()), item_of(middle())};
    while (items.size() <= middles) items.push_back(items.back());
    items.push_back(item_of(narrowing()));
    for (size_t i = 0; i < items.size(); ++i)
        items[i].params = "items." + std::to_string(i) + ".", items[i].layer = static_cast<int64_t>(i);
    return chain_of(std::move(items));
}

namespace {

mdlm_config config() {
    mdlm_config c = MDLM_CONFIG_INIT;
    c.num_layers = 4, c.hidden_size = 8, c.num_attention_heads = 2, c.position_embedding_type = MDLM_POSITION_NONE;
    c.final_layernorm = 0, c.params_dtype = MDLM_DTYPE_F32;
    return c;
}

std::vector<float> numbers(uint64_t seed, int64_t count) {
    std::vector<float> v(static_cast<size_t>(count));
    for (size_t i = 0; i < v.size(); ++i)
        v[i] = static_cast<float>(static_cast<uint32_t>((seed * 7919 + i) * 2654435761u) >> 8) / 8388608.0f - 1.0f;
    return v;
}

}  // namespace

struct World::Micro {
    explicit Micro(uint64_t seed)
        : x(numbers(seed, rows * 8)), dy(numbers(seed + 1, rows * 6)), y(rows * 6), dx(rows * 8) {
        for (int64_t i = 0; i < rows; ++i)
            positions.push_back(static_cast<int32_t>((seed + static_cast<uint64_t>(i) * 3) % 7)),
                labels.push_back(static_cast<int32_t>((seed * 5 + static_cast<uint64_t>(i)) % 5) - 2);
        sides = {positions.data(), labels.data()};
    }
    std::vector<float> x, dy, y, dx;
    std::vector<int32_t> positions, labels;
    std::vector<const void *> sides;
    std::vector<std::vector<std::vector<char>>> buffers;  // by item, op by op
};

// Every op in order, each buffer in memory of its own.
struct World::Apart {
    explicit Apart(World &world, bool dx) : w(world) {
        bool active = dx;
        const auto trains = w.block->params().trains();
        for (int64_t i = 0; i < w.chain.items(); ++i) {
            derivatives.push_back(differentiate(w.chain[i].program, trains[i], active));
            active = active || std::count(trains[i].begin(), trains[i].end(), 1) > 0;
            grads.emplace_back(), grad_at.emplace_back();
            for (const ParamEntry &p : w.block->params().entries())
                if (p.item == i) grads.back().emplace_back(static_cast<size_t>(p.elements));
            for (auto &g : grads.back()) grad_at.back().push_back(g.data());
        }
    }
    void ops(int64_t item, Micro &m, bool training, const std::vector<std::unique_ptr<Op>> &list) {
        RunState state;
        state.tokens = {5, 2, false}, state.training = training;
        state.params = w.block->params().data_of(item), state.grads = grad_at[item].data();
        std::vector<void *> states = {w.states_[item].data()};
        state.states = states.data();
        for (const auto &op : list) {
            std::vector<void *> in, out;
            for (BufferId b : op->in) in.push_back(m.buffers[item][b].data());
            for (BufferId b : op->out) out.push_back(m.buffers[item][b].data());
            std::vector<double> workspace(static_cast<size_t>(op->workspace(w.engine.device->traits(), {rows, 5})) / 8 +
                                          8);
            op->run({*w.engine.device, w.engine.group, state, in.data(), out.data(), workspace.data()});
        }
    }
    std::vector<float> forward(Micro &m, bool training) {
        m.buffers.assign(static_cast<size_t>(w.chain.items()), {});
        std::vector<char> x(reinterpret_cast<const char *>(m.x.data()),
                            reinterpret_cast<const char *>(m.x.data() + m.x.size()));
        for (int64_t i = 0; i < w.chain.items(); ++i) {
            const Differentiated &d = *derivatives[i];
            for (const mdlm::Buffer &b : d.buffers)
                m.buffers[i].emplace_back(static_cast<size_t>(b.bytes({rows, 5})), '\xff');
            m.buffers[i][d.program->input] = x;
            for (BufferId s : d.program->sides) {
                const auto &given = d.program->buffers[s].name == "positions" ? m.positions : m.labels;
                std::memcpy(m.buffers[i][s].data(), given.data(), given.size() * sizeof(int32_t));
            }
            ops(i, m, training, d.program->ops);
            x = m.buffers[i][d.program->output];
        }
        std::vector<float> y(x.size() / sizeof(float));
        std::memcpy(y.data(), x.data(), x.size());
        return y;
    }
    std::vector<float> backward(Micro &m) {
        std::vector<char> dy(reinterpret_cast<const char *>(m.dy.data()),
                             reinterpret_cast<const char *>(m.dy.data() + m.dy.size()));
        for (int64_t i = w.chain.items(); i-- > 0;) {
            const Differentiated &d = *derivatives[i];
            if (d.output_gradient == no_buffer) return {};
            m.buffers[i][d.output_gradient] = dy;
            ops(i, m, true, d.backward);
            if (d.input_gradient == no_buffer) return {};
            dy = m.buffers[i][d.input_gradient];
        }
        std::vector<float> dx(dy.size() / sizeof(float));
        std::memcpy(dx.data(), dy.data(), dy.size());
        return dx;
    }
    World &w;
    std::vector<std::shared_ptr<const Differentiated>> derivatives;
    std::vector<std::vector<std::vector<float>>> grads;
    std::vector<std::vector<void *>> grad_at;
};

World::World(size_t middles)
    : engine(make_reference_device(), Comms{make_self_comm(), nullptr, 0}, nullptr, nullptr),
      chain(make_items(middles)), block(std::make_unique<Block>(engine, config(), chain)) {
    for (const Item &item : chain.list) {
        states_.emplace_back();
        for (const State &s : item.program->states) states_.back().assign(static_cast<size_t>(s.elements), 0.0f);
    }
}

mdlm_shape World::shape(int32_t in_flight) const {
    mdlm_shape s = MDLM_SHAPE_INIT;
    s.seq_length = 5, s.micro_batch_size = 2, s.in_flight = in_flight;
    return s;
}

mdlm_batch World::batch(size_t micro) const {
    mdlm_batch b = MDLM_BATCH_INIT;
    b.seq_length = 5, b.micro_batch_size = 2, b.training = 1;
    b.micro_batch_index = static_cast<uint32_t>(micro);
    return b;
}

std::string World::run(const mdlm_shape &shape, const Policies &policies,
                       const std::function<void(BlockPlan &)> &fault) {
    block->reserve(&shape, &policies);
    for (const ParamEntry &p : block->params().entries()) {
        const std::vector<float> values = numbers(p.offset + 11, p.elements);
        std::memcpy(p.data, values.data(), static_cast<size_t>(p.bytes));
    }
    block->params().zero_grads(*engine.device);
    const BlockPlan &plan = block->plan();
    const int64_t peak = plan.peak_bytes, saved = plan.stack_bytes;
    if (fault != nullptr) fault(const_cast<BlockPlan &>(plan));
    std::vector<Tape *> tapes;
    for (int32_t i = 0; i < shape.in_flight; ++i) tapes.push_back(&block->acquire_tape());
    Apart apart(*this, shape.input_requires_grad != 0);
    std::string wrong;
    const auto hold = [&](bool good, const char *what) {
        if (!good && wrong.empty()) wrong = what;
    };
    for (int round = 0; round < 2; ++round) {
        std::vector<std::unique_ptr<Micro>> micros;
        const auto evaluate = [&] {
            Micro m(900 + micros_);
            mdlm_batch b = batch(0);
            b.training = 0;
            block->forward(&b, m.x.data(), nullptr, m.y.data(), m.sides.data());
            hold(m.y == apart.forward(m, false), "y of an evaluation");
        };
        if (shape.evaluate_in_flight == 0) evaluate();
        for (size_t i = 0; i < tapes.size(); ++i) {
            micros.push_back(std::make_unique<Micro>(++micros_));
            Micro &m = *micros.back();
            std::vector<float> x = m.x;
            const bool borrowed = shape.input_storage == MDLM_INPUT_BORROW;
            const mdlm_batch b = batch(i);
            block->forward(&b, borrowed ? m.x.data() : x.data(), tapes[i], m.y.data(), m.sides.data());
            std::fill(x.begin(), x.end(), NAN);
            std::fill(m.sides.begin(), m.sides.end(), nullptr);  // the tape has the addresses
            hold(m.y == apart.forward(m, true), "y");
            hold(tapes[i]->counts.high_water_bytes <= static_cast<uint64_t>(peak), "more than the peak is used");
            hold(tapes[i]->counts.saved_bytes == static_cast<uint64_t>(saved), "other bytes are saved than planned");
        }
        if (shape.evaluate_in_flight != 0) evaluate();
        for (size_t i = 0; i < tapes.size(); ++i) {
            const size_t at = (i + (round == 0 ? 1 : 2)) % tapes.size();
            Micro &m = *micros[at];
            block->backward(tapes[at], nullptr, m.dy.data(), shape.input_requires_grad != 0 ? m.dx.data() : nullptr);
            const std::vector<float> dx = apart.backward(m);
            hold(shape.input_requires_grad == 0 || m.dx == dx, "dx");
            hold(tapes[at]->counts.high_water_bytes <= static_cast<uint64_t>(peak), "more than the peak is used");
        }
    }
    for (const ParamEntry &p : block->params().entries())
        if (p.grad_bytes > 0)
            hold(std::memcmp(p.grad, apart.grads[p.item][p.id].data(), static_cast<size_t>(p.grad_bytes)) == 0,
                 "a gradient");
    for (Tape *t : tapes) block->release_tape(*t);
    return wrong;
}

}  // namespace mdlm_test::chain_items

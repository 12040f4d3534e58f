// SPDX-License-Identifier: Apache-2.0
// Programs in which several ops contribute to one gradient, or only some inputs of an op want one. Their gradients are
// compared with differences of their forward, and every policy gives the same bits.
#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <map>

#include "base/sizes.hpp"
#include "plan/layout.hpp"
#include "support/programs.hpp"

using namespace mdlm;
using mdlm_test::ProgramMaker;
using mdlm_test::ProgramStep;

namespace {

constexpr int64_t width = 8, heads = 2, d = 4;
constexpr Tokens tokens = {5, 2, false};

using Make = std::function<BufferId(ProgramMaker &)>;

struct ConstantOp final : Op {
    const char *name() const override { return "constant"; }
    void run(const Call &c) const override {
        for (int64_t i = 0; i < c.state.tokens.rows() * width; ++i)
            store(dtype, c.out[0], i, static_cast<double>(i % 7) - 3.0);
    }
    Cost cost(Extent) const override { return {}; }
    DType dtype = DType::f32;
};

BufferId constant(ProgramMaker &m) {
    auto op = std::make_unique<ConstantOp>();
    op->dtype = m.dtype, op->out = {m.buffer("constant", width)};
    const BufferId made = op->out[0];
    m.emit(std::move(op));
    return made;
}

const std::map<std::string, Make> &programs() {
    static const std::map<std::string, Make> all = {
        {"attention and MLP in parallel on one norm",
         [](ProgramMaker &m) {
             const BufferId u = m.norm("norm", m.p.input), qkv = m.linear("qkv", u, 3 * width);
             const BufferId context = m.attention("context", heads, d, {qkv, 0}, {qkv, width}, {qkv, 2 * width});
             const BufferId attention = m.linear("proj", context, width);
             const BufferId mlp = m.linear("fc2", m.activation("act", m.linear("fc1", u, 12)), width);
             return m.sum("output", attention, m.sum("x1", mlp, m.p.input, 0.25));
         }},
        {"one tensor read by three linears",
         [](ProgramMaker &m) {
             const BufferId q = m.linear("q", m.p.input, width), k = m.linear("k", m.p.input, width),
                            v = m.linear("v", m.p.input, width);
             return m.linear("proj", m.attention("context", heads, d, {q}, {k}, {v}), width);
         }},
        {"v from a linear of its own, in steps",
         [](ProgramMaker &m) {
             const BufferId qk = m.linear("qk", m.p.input, 2 * width), v = m.linear("v", m.p.input, width);
             const BufferId context = m.attention("context", heads, d, {qk, 0}, {qk, width}, {v}, false);
             return m.sum("output", m.linear("proj", context, width), m.p.input);
         }},
        {"one tensor is q, k and v",
         [](ProgramMaker &m) {
             const BufferId u = m.linear("u", m.p.input, width);
             return m.linear("proj", m.attention("context", heads, d, {u}, {u}, {u}), width);
         }},
        {"columns that nobody reads",
         [](ProgramMaker &m) {
             const BufferId a = m.linear("a", m.p.input, 4 * width);
             return m.attention("context", heads, d, {a, 0}, {a, 2 * width}, {a, 2 * width});
         }},
        {"columns of one tensor, twice, and all of it",
         [](ProgramMaker &m) {
             const BufferId qkv = m.linear("qkv", m.p.input, 3 * width);
             const BufferId one = m.attention("one", heads, d, {qkv, 0}, {qkv, width}, {qkv, 2 * width});
             const BufferId two = m.attention("two", heads, d, {qkv, width}, {qkv, 0}, {qkv, width}, false);
             return m.sum("output", m.sum("both", one, two, 0.5), m.linear("whole", qkv, width));
         }},
        {"a norm and others on one tensor",
         [](ProgramMaker &m) {
             const BufferId qkv = m.linear("qkv", m.p.input, 3 * width);
             const BufferId context = m.attention("context", heads, d, {qkv, 0}, {qkv, width}, {qkv, 2 * width});
             const BufferId normed = m.linear("a", m.norm("norm", qkv), width);
             return m.sum("output", m.sum("x1", context, normed), m.linear("b", qkv, width));
         }},
        {"a residual twice",
         [](ProgramMaker &m) {
             const BufferId once = m.sum("once", m.linear("a", m.p.input, width), m.p.input);
             return m.sum("output", m.linear("b", once, width), m.sum("twice", once, m.p.input, 0.25));
         }},
        {"a tensor added to itself", [](ProgramMaker &m) { return m.sum("output", m.p.input, m.p.input); }},
        {"an output that is read",
         [](ProgramMaker &m) {
             const BufferId y = m.linear("output", m.p.input, width);
             m.activation("unused", y);
             return y;
         }},
        {"one weight for two linears",
         [](ProgramMaker &m) {
             const BufferId a = m.linear("a", m.p.input, width);
             return m.linear("b", m.activation("act", a), width, 0);
         }},
        {"one weight for two norms",
         [](ProgramMaker &m) {
             const BufferId a = m.linear("a", m.norm("one", m.p.input), width);
             return m.norm("two", a, 0);
         }},
        {"the output does not depend on the input",
         [](ProgramMaker &m) { return m.linear("output", constant(m), width); }},
        {"the input's gradient is the output's",
         [](ProgramMaker &m) { return m.sum("output", m.linear("a", constant(m), width), m.p.input); }},
    };
    return all;
}

std::shared_ptr<const Program> make(const Make &maker, DType type) {
    ProgramMaker m(width, type);
    const BufferId output = maker(m);
    return m.take(output);
}

ProgramStep step_of(const Program &p, const std::vector<char> &trains, bool accumulate) {
    ProgramStep s(p, tokens);
    const DType type = p.buffers[p.input].dtype;
    s.size_of_param = static_cast<size_t>(size_of(type)), s.sizeof_wide = static_cast<size_t>(size_of(wide(type)));
    s.bind(trains, accumulate);
    return s;
}

double dot(const std::vector<char> &a, const std::vector<char> &b) {
    double total = 0.0;
    for (int64_t i = 0; i < static_cast<int64_t>(a.size() / sizeof(double)); ++i)
        total += load(DType::f64, a.data(), i) * load(DType::f64, b.data(), i);
    return total;
}

// One layer's forward and backward at the places of a layout: the frame, and the slab right above it.
struct Planned {
    Schedule schedule;
    Layout layout;
    Planned(std::shared_ptr<const Differentiated> of, const LayerPolicy &policy, const Device &device)
        : schedule(make_schedule(std::move(of), policy, true, {tokens.rows(), tokens.seq}, device.traits())) {
        LayoutKey key;
        key.slab_above = true;
        layout = make_layout(schedule, key);
    }
    void run(Device &device, Group &group, ProgramStep &step) const {
        const int64_t slab = std::max(layout.forward_slab, layout.backward_slab);
        std::vector<char> arena(static_cast<size_t>(layout.frame_bytes + slab) + 256, '\xff');
        char *frame = arena.data() + (256 - reinterpret_cast<uintptr_t>(arena.data()) % 256) % 256;
        step.y.assign(step.dy.size(), '\xff'), step.dx.assign(step.x.size(), '\xff');
        const auto address = [&](int32_t v) -> void * {
            switch (schedule.values[v].home) {
            case Home::x: return step.x.data();
            case Home::y: return step.y.data();
            case Home::dy: return step.dy.data();
            case Home::dx: return step.dx.data();
            default: break;
            }
            const ValuePlace &p = layout.places[v];
            return (p.where == ValuePlace::Where::frame ? frame : frame + layout.frame_bytes) + p.offset;
        };
        for (const auto *ops : {&schedule.forward, &schedule.backward})
            for (const ScheduledOp &s : *ops) {
                std::vector<void *> in, out;
                for (int32_t v : s.in) in.push_back(address(v));
                for (int32_t v : s.out) out.push_back(address(v));
                schedule.op(s).run({device, group, step.state, in.data(), out.data(),
                                    s.workspace < 0 ? nullptr : address(s.workspace)});
            }
        if (schedule.dx < 0) step.dx.clear();
    }
};

// Which parameters are trained: all, each one alone, none (with the input).
std::vector<std::vector<char>> choices(const Program &p) {
    std::vector<std::vector<char>> all = {std::vector<char>(p.params.size(), 1)};
    for (size_t i = 0; i < p.params.size(); ++i) {
        all.emplace_back(p.params.size(), 0);
        all.back()[i] = 1;
    }
    all.emplace_back(p.params.size(), 0);
    return all;
}

struct Rig {
    std::unique_ptr<Device> device;
    Group group{make_self_comm(), nullptr, nullptr, 1000};
};

}  // namespace

TEST_CASE("gradient programs: gradients are those of differences, whatever is trained") {
    Rig rig{make_reference_device()};
    for (const auto &[name, maker] : programs()) {
        CAPTURE(name);
        const auto program = make(maker, DType::f64);
        for (const std::vector<char> &trains : choices(*program))
            for (const bool input : {true, false})
                for (const bool accumulate : {true, false}) {
                    const auto derivative = differentiate(program, trains, input);
                    CAPTURE(input);
                    CAPTURE(accumulate);
                    ProgramStep s = step_of(*program, trains, accumulate);
                    run_apart(*derivative, *rig.device, rig.group, s);
                    CHECK((derivative->input_gradient != no_buffer) == input);
                    // The forward alone, with one number changed.
                    const auto forward = differentiate(program, std::vector<char>(trains.size(), 0), false);
                    const auto check = [&](std::vector<char> &value, const std::vector<char> &gradient) {
                        double largest = 0.0;
                        for (int64_t i = 0; i < static_cast<int64_t>(value.size() / sizeof(double)); ++i) {
                            const double was = load(DType::f64, value.data(), i), step = 1e-5;
                            const auto loss = [&](double at) {
                                store(DType::f64, value.data(), i, at);
                                ProgramStep probe = s;
                                probe.bind(std::vector<char>(trains.size(), 0), true);
                                run_apart(*forward, *rig.device, rig.group, probe);
                                return dot(probe.y, s.dy);
                            };
                            const double difference = (loss(was + step) - loss(was - step)) / (2 * step);
                            store(DType::f64, value.data(), i, was);
                            const double found = load(DType::f64, gradient.data(), i);
                            largest = std::max(largest, std::abs(found));
                            REQUIRE(found == doctest::Approx(difference).epsilon(1e-6).scale(1.0));
                        }
                        return largest;
                    };
                    const std::vector<std::vector<char>> grads = s.grads;
                    for (size_t i = 0; i < s.params.size(); ++i)
                        if (trains[i]) {
                            CAPTURE(program->params[i].name);
                            CHECK(check(s.params[i], grads[i]) > 0.01);
                        }
                    const std::vector<char> dx = s.dx;
                    if (input) {
                        const double largest = check(s.x, dx);
                        CHECK((largest > 0.01) == (name != "the output does not depend on the input"));
                    }
                }
    }
}

TEST_CASE("gradient programs: the same bits under every policy") {
    for (const bool reference : {true, false}) {
        Rig rig{reference ? make_reference_device() : make_cpu_device(make_own_pool(2), MDLM_MATMUL_OWN)};
        for (const auto &[name, maker] : programs()) {
            CAPTURE(name);
            CAPTURE(reference);
            const auto program = make(maker, reference ? DType::f64 : DType::f32);
            const std::vector<BufferId> tensors = tensors_of(*program);
            for (const std::vector<char> &trains : choices(*program)) {
                const auto derivative = differentiate(program, trains, true);
                ProgramStep expected = step_of(*program, trains, false);
                run_apart(*derivative, *rig.device, rig.group, expected);
                for (uint32_t kept = 0; kept < 1u << (tensors.size() - 1); ++kept) {
                    if (trains != choices(*program)[0] && kept % 5 != 0) continue;
                    LayerPolicy policy(program->buffers.size(), Storage::replay);
                    policy[program->input] = Storage::keep;
                    for (size_t i = 1; i < tensors.size(); ++i)
                        if ((kept >> (i - 1) & 1) != 0) policy[tensors[i]] = Storage::keep;
                    ProgramStep s = step_of(*program, trains, false);
                    Planned(derivative, policy, *rig.device).run(*rig.device, rig.group, s);
                    const bool same = s.y == expected.y && s.dx == expected.dx && s.grads == expected.grads;
                    CHECK_MESSAGE(same, "kept ", kept);
                }
            }
        }
    }
}

TEST_CASE("gradient programs: what is not wanted is not made") {
    for (const bool fused : {true, false}) {
        CAPTURE(fused);
        ProgramMaker m(width);
        const BufferId q = m.linear("q", m.p.input, width), k = m.linear("k", m.p.input, width),
                       v = m.linear("v", m.p.input, width);
        const auto program = m.take(m.attention("context", heads, d, {q}, {k}, {v}, fused));
        Rig rig{make_reference_device()};
        ProgramStep all = step_of(*program, {1, 1, 1}, false);
        run_apart(*differentiate(program, {1, 1, 1}, false), *rig.device, rig.group, all);
        for (int wanted = 0; wanted < 8; ++wanted) {
            CAPTURE(wanted);
            const std::vector<char> trains = {char(wanted & 1), char(wanted >> 1 & 1), char(wanted >> 2 & 1)};
            const auto derivative = differentiate(program, trains, false);
            ProgramStep some = step_of(*program, trains, false);
            run_apart(*derivative, *rig.device, rig.group, some);
            for (size_t i = 0; i < trains.size(); ++i)
                if (trains[i]) CHECK(some.grads[i] == all.grads[i]);
            std::map<std::string, int> made;
            for (const auto &op : derivative->backward)
                for (BufferId b : op->out) ++made[derivative->buffers[b].name];
            CHECK(made.count("q.gradient") == (wanted & 1u));
            CHECK(made.count("k.gradient") == (wanted >> 1 & 1u));
            CHECK(made.count("v.gradient") == (wanted >> 2 & 1u));
        }
    }
}

TEST_CASE("gradient programs: an op that can add is asked to, and no sum is written beside it") {
    ProgramMaker m(width);
    const BufferId mlp = m.linear("fc", m.norm("norm", m.p.input), width);
    const auto program = m.take(m.sum("output", mlp, m.p.input));
    const auto derivative = differentiate(program, {1, 1}, true);
    for (const auto &op : derivative->backward) CHECK(std::string(op->name()) != "gradient_sum");
}

// SPDX-License-Identifier: Apache-2.0
#include "lifetimes.hpp"

#include <map>

#include "base/sizes.hpp"

namespace property::memory {
namespace {

using mdlm::Home;
using mdlm::PlanEntry;
using mdlm::Schedule;

class Deriver {
public:
    explicit Deriver(const World &world) : world_(world), plan_(world.plan()), tapes_(world.draw().micro.size()) {}

    Lifetimes derive() {
        const auto &events = world_.draw().events;
        for (event_ = 0; event_ < events.size(); ++event_) {
            const Event &e = events[event_];
            tape_ = &tapes_[e.micro];
            extent_ = world_.extent(e.micro);
            switch (e.kind) {
            case Event::Kind::evaluate: {
                Tape none;
                tape_ = &none;
                pass(plan_.evaluate);
                break;
            }
            case Event::Kind::backward: back(); break;
            case Event::Kind::forward:
            case Event::Kind::abandon: *tape_ = {}; pass(plan_.forward);
            }
        }
        out_.born.resize(out_.lines.size());
        out_.dead.resize(out_.lines.size());
        for (size_t i = 0; i < out_.pieces.size(); ++i) {
            const Piece &p = out_.pieces[i];
            if (p.where != Piece::Where::arena && p.where != Piece::Where::host) continue;
            out_.born[static_cast<size_t>(p.first)].push_back(static_cast<int32_t>(i));
            out_.dead[static_cast<size_t>(p.last)].push_back(static_cast<int32_t>(i));
        }
        return std::move(out_);
    }

private:
    // What a tape has for backward, by item: its input, and its saved values.
    struct Tape {
        std::map<int64_t, int32_t> x, share;
        std::map<std::pair<int64_t, int32_t>, int32_t> saved, host;
    };

    int32_t piece(Piece::Where where, int64_t bytes) {
        out_.pieces.push_back({where, event_, bytes});
        return static_cast<int32_t>(out_.pieces.size()) - 1;
    }
    int64_t bytes_of(const Schedule &s, int32_t v) const { return s.layer->buffers[s.values[v].buffer].bytes(extent_); }
    int64_t share_bytes(const PlanEntry &e) const {
        const int64_t element =
            mdlm::size_of(e.schedule->layer->buffers[e.schedule->values[e.schedule->x].buffer].dtype);
        return mdlm::ceil_div(input_bytes(e) / element, plan_.input.group_size) * element;
    }
    void copy(const PlanEntry &e, int32_t in, int32_t out) {
        Line l;
        l.entry = &e;
        l.in = {in}, l.out = {out}, l.values = {e.schedule->x};
        push(std::move(l));
    }
    int64_t input_bytes(const PlanEntry &e) const { return bytes_of(*e.schedule, e.schedule->x); }
    bool is_last(int64_t item) const { return item + 1 == plan_.input.chain.items(); }

    void use(int32_t piece) {
        Piece &p = out_.pieces[piece];
        const auto line = static_cast<int64_t>(out_.lines.size());
        if (p.first < 0) p.first = line;
        p.last = line;
    }
    void push(Line line) {
        for (int32_t p : line.in) use(p);
        for (int32_t p : line.out) use(p);
        if (line.workspace >= 0) use(line.workspace);
        line.event = event_;
        out_.lines.push_back(std::move(line));
    }

    // Runs the entry's steps; known has the pieces of x, y, dy, dx and of what was saved, and gets all others.
    void steps(const PlanEntry &e, bool backward, std::map<int32_t, int32_t> &known) {
        const Schedule &s = *e.schedule;
        const auto of = [&](int32_t v) {
            const auto [at, is_new] = known.try_emplace(s.root(v), -1);
            if (is_new) at->second = piece(Piece::Where::arena, bytes_of(s, v));
            return at->second;
        };
        for (const mdlm::ScheduledOp &step : backward ? s.backward : s.forward) {
            Line l;
            l.entry = &e, l.step = &step;
            for (int32_t v : step.in) l.in.push_back(of(v));
            for (int32_t v : step.out) l.out.push_back(of(v));
            const int64_t workspace = s.op(step).workspace(plan_.input.traits, extent_);
            if (workspace > 0) l.workspace = piece(Piece::Where::arena, workspace);
            push(std::move(l));
        }
    }

    // One layer forward; returns its output.
    int32_t forward(const PlanEntry &e, int32_t x) {
        const Schedule &s = *e.schedule;
        const int32_t y =
            is_last(e.item) ? piece(Piece::Where::y, bytes_of(s, s.y)) : piece(Piece::Where::arena, bytes_of(s, s.y));
        std::map<int32_t, int32_t> known = {{s.x, x}, {s.y, y}};
        steps(e, false, known);
        tape_->x[e.item] = x;
        for (int32_t v : s.saved) tape_->saved[{e.item, v}] = known.at(v);
        return y;
    }

    // Values that an entry's unit has on the host.
    template <class F>
    void each_staged(const PlanEntry &e, F &&f) {
        const Schedule &s = *e.schedule;
        const auto &policy = plan_.input.policies.items[e.item];
        const bool several = plan_.input.policies.unit_of(e.item).count > 1;
        if (policy[s.layer->program->input] == mdlm::Storage::host && (several || s.saves_input))
            f(s.x, tape_->x[e.item]);
        for (int32_t v : s.saved)
            if (s.values[v].home == Home::staged) f(v, tape_->saved[{e.item, v}]);
    }
    void to_host(const PlanEntry &e) {
        Line l;
        l.entry = &e;
        each_staged(e, [&](int32_t v, int32_t &on_device) {
            l.in.push_back(on_device);
            l.out.push_back(tape_->host[{e.item, v}] = piece(Piece::Where::host, bytes_of(*e.schedule, v)));
            l.values.push_back(v);
        });
        push(std::move(l));
    }
    void from_host(const PlanEntry &e) {
        Line l;
        l.entry = &e;
        each_staged(e, [&](int32_t v, int32_t &on_device) {
            l.in.push_back(tape_->host.at({e.item, v}));
            l.out.push_back(on_device = piece(Piece::Where::arena, bytes_of(*e.schedule, v)));
            l.values.push_back(v);
        });
        push(std::move(l));
    }

    void pass(const std::vector<PlanEntry> &entries) {
        int32_t x = piece(Piece::Where::x, input_bytes(entries.front()));
        for (const PlanEntry &e : entries) {
            if (e.kind == PlanEntry::Kind::forward) {
                x = forward(e, x);
            } else if (e.kind == PlanEntry::Kind::to_host) {
                to_host(e);
            } else if (e.kind == PlanEntry::Kind::copy_input) {
                const int32_t given = x;
                copy(e, given, x = piece(Piece::Where::arena, input_bytes(e)));
            } else if (e.kind == PlanEntry::Kind::shard_input) {
                copy(e, x, tape_->share[e.item] = piece(Piece::Where::arena, share_bytes(e)));
            } else {
                mdlm::fail(MDLM_ERROR_INTERNAL, "entry %d in forward: not expected", int(e.kind));
            }
        }
    }

    void back() {
        int32_t gradient = -1;
        for (const PlanEntry &e : plan_.backward) {
            const Schedule &s = *e.schedule;
            if (e.kind == PlanEntry::Kind::from_host) {
                from_host(e);
            } else if (e.kind == PlanEntry::Kind::forward) {  // of a unit of several layers
                const int32_t y = forward(e, tape_->x.at(e.item));
                tape_->x[e.item + 1] = y;
            } else if (e.kind == PlanEntry::Kind::backward) {
                if (gradient < 0) gradient = piece(Piece::Where::dy, bytes_of(s, s.dy));
                std::map<int32_t, int32_t> known = {{s.x, tape_->x.at(e.item)}, {s.dy, gradient}};
                for (int32_t v : s.saved) known[v] = tape_->saved.at({e.item, v});
                if (s.dx >= 0) {
                    gradient = piece(e.item == 0 ? Piece::Where::dx : Piece::Where::arena, bytes_of(s, s.dx));
                    known[s.dx] = gradient;
                }
                steps(e, true, known);
            } else if (e.kind == PlanEntry::Kind::gather_input) {
                copy(e, tape_->share.at(e.item),
                     tape_->x[e.item] = piece(Piece::Where::arena, share_bytes(e) * plan_.input.group_size));
            } else {
                mdlm::fail(MDLM_ERROR_INTERNAL, "entry %d in backward: not expected", int(e.kind));
            }
        }
    }

    const World &world_;
    const mdlm::BlockPlan &plan_;
    std::vector<Tape> tapes_;
    Tape *tape_ = nullptr;
    size_t event_ = 0;
    mdlm::Extent extent_;
    Lifetimes out_;
};

}  // namespace

Lifetimes derive(const World &world) { return Deriver(world).derive(); }

}  // namespace property::memory

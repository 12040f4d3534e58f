// SPDX-License-Identifier: Apache-2.0
#include "plan/schedule.hpp"

#include <algorithm>

#include "base/sizes.hpp"
#include "plan/replay.hpp"

namespace mdlm {
namespace {

class Scheduler {
public:
    Scheduler(Schedule &s, const LayerPolicy &policy, bool save, Extent bound, const Traits &traits, bool in_unit)
        : s_(s), d_(*s.layer), p_(*s.layer->program), replay_(d_), policy_(policy), bound_(bound), traits_(traits),
          keeps_(save || in_unit), again_(save && in_unit), saved_(replay_.none()) {
        if (!save) return;
        const BufferSet staying = replay_.staying(policy), needed = replay_.needed(staying);
        saved_ = staying & needed;
        s_.saves_input = needed.has(p_.input);
    }

    void forward() {
        made_.assign(p_.buffers.size(), -1);
        s_.x = made_[p_.input] = value(p_.input, Home::x);
        for (BufferId b : p_.sides) made_[b] = value(b, Home::side);
        for (size_t i = 0; i < p_.ops.size(); ++i) {
            for (BufferId b : p_.ops[i]->out) {
                const Home home = b == p_.output                ? Home::y
                                  : kept(b)                     ? Home::kept
                                  : !saved_.has(b)              ? Home::scratch
                                  : storage(b) == Storage::host ? Home::staged
                                                                : Home::frame;
                made_[b] = value(b, home);
                if (home == Home::frame || home == Home::staged || home == Home::kept) s_.saved.push_back(made_[b]);
            }
            const auto &out = p_.ops[i]->out;
            if (again_ && std::any_of(out.begin(), out.end(), [&](BufferId b) { return kept(b); })) continue;
            add_op(s_.forward, static_cast<int32_t>(i), false, false, made_, made_);
        }
        s_.y = made_[p_.output];
    }

    // A forward tensor is made again right before the first backward op that reads it, and lives to the last.
    void backward() {
        at_hand_.assign(d_.buffers.size(), -1);
        at_hand_[p_.input] = s_.x;
        for (BufferId b : p_.sides) at_hand_[b] = made_[b];
        for (int32_t v : s_.saved) at_hand_[s_.values[v].buffer] = v;
        if (d_.output_gradient != no_buffer) s_.dy = at_hand_[d_.output_gradient] = value(d_.output_gradient, Home::dy);
        std::vector<Replay::Step> steps;
        replay_.steps(saved_, steps);
        for (const Replay::Step &step : steps)
            if (step.backward) add_backward(step.op);
            else add_replay(step.op);
    }

private:
    Storage storage(BufferId b) const { return policy_[p_.buffers[b].main]; }
    bool kept(BufferId b) const { return keeps_ && p_.always_kept(b); }

    void add_backward(int32_t i) {
        for (BufferId b : d_.backward[i]->out) {
            if (at_hand_[b] >= 0) continue;  // its other part was assigned before
            at_hand_[b] = value(b, b == d_.input_gradient ? Home::dx : Home::scratch);
            if (b == d_.input_gradient) s_.dx = at_hand_[b];
        }
        add_op(s_.backward, i, true, false, at_hand_, at_hand_);
    }

    void add_replay(int32_t i) {
        std::vector<int32_t> outs = at_hand_;
        for (BufferId o : p_.ops[i]->out) {
            outs[o] = value(o, Home::scratch);  // what was kept is not written over: a place to write instead
            if (at_hand_[o] < 0) at_hand_[o] = outs[o];
        }
        add_op(s_.backward, i, false, true, at_hand_, outs);
    }

    int32_t value(BufferId b, Home home) {
        s_.values.push_back({b, home, rounded(d_.buffers[b].bytes(bound_)), -1});
        return static_cast<int32_t>(s_.values.size() - 1);
    }

    void add_op(std::vector<ScheduledOp> &to, int32_t index, bool is_backward, bool replay,
                const std::vector<int32_t> &in, const std::vector<int32_t> &out) {
        const Op &op = d_.op(index, is_backward);
        ScheduledOp s{index, is_backward, replay, {}, {}, -1};
        for (BufferId b : op.in) s.in.push_back(in[b]);
        for (BufferId b : op.out) s.out.push_back(out[b]);
        const int64_t bytes = op.workspace(traits_, bound_);
        if (bytes > 0) {
            s_.values.push_back({no_buffer, Home::scratch, rounded(bytes), -1});
            s.workspace = static_cast<int32_t>(s_.values.size() - 1);
        }
        to.push_back(std::move(s));
    }

    Schedule &s_;
    const Differentiated &d_;
    const Program &p_;
    const Replay replay_;
    const LayerPolicy &policy_;
    Extent bound_;
    const Traits &traits_;
    const bool keeps_, again_;  // it has the tape's place for what is always kept; and finds that there
    BufferSet saved_;           // from forward to backward, the input apart
    std::vector<int32_t> made_, at_hand_;
};

// Lets an op write over an input that it is the last to read.
void work_in_place(Schedule &s, std::vector<ScheduledOp> &ops, bool is_backward) {
    const auto last_use = [&](int32_t v) {
        int32_t last = -1;
        for (size_t i = 0; i < ops.size(); ++i)
            if (std::count(ops[i].in.begin(), ops[i].in.end(), v) +
                    std::count(ops[i].out.begin(), ops[i].out.end(), v) >
                0)
                last = static_cast<int32_t>(i);
        return last;
    };
    const auto first_use = [&](int32_t v) {
        for (size_t i = 0; i < ops.size(); ++i)
            if (std::count(ops[i].in.begin(), ops[i].in.end(), v) +
                    std::count(ops[i].out.begin(), ops[i].out.end(), v) >
                0)
                return static_cast<int32_t>(i);
        return -1;
    };
    for (size_t i = 0; i < ops.size(); ++i) {
        const ScheduledOp &op = ops[i];
        if (op.out.empty()) continue;  // only parameter gradients are wanted of it
        for (int32_t candidate : s.op(op).in_place()) {
            const int32_t from = op.in[candidate], to = op.out[0];
            const Value &a = s.values[from], &b = s.values[to];
            const Home ra = s.values[s.root(from)].home;
            const bool from_free = a.home == Home::scratch || (is_backward && a.home == Home::frame);
            const bool to_free = b.home == Home::scratch || (!is_backward && b.home == Home::frame);
            if (!from_free || !to_free || b.same_as >= 0) continue;
            if (b.home == Home::frame && ra == Home::frame) continue;
            if (!s.layer->buffers[a.buffer].same_form(s.layer->buffers[b.buffer])) continue;
            if (std::count(op.in.begin(), op.in.end(), from) != 1 || last_use(from) != static_cast<int32_t>(i) ||
                first_use(to) != static_cast<int32_t>(i))
                continue;
            if (b.home == Home::frame) s.values[s.root(from)].same_as = to;  // made where its successor is saved
            else s.values[to].same_as = from;
            break;
        }
    }
}

}  // namespace

Schedule make_schedule(std::shared_ptr<const Differentiated> layer, const LayerPolicy &policy, bool save, Extent bound,
                       const Traits &traits, bool in_unit) {
    Schedule s;
    s.layer = std::move(layer);
    Scheduler scheduler(s, policy, save, bound, traits, in_unit);
    scheduler.forward();
    work_in_place(s, s.forward, false);
    if (save) {
        scheduler.backward();
        work_in_place(s, s.backward, true);
    }
    return s;
}

}  // namespace mdlm

// SPDX-License-Identifier: Apache-2.0
#include "plan/policy_enumerator.hpp"

#include <algorithm>

#include "base/sizes.hpp"
#include "plan/times.hpp"

namespace mdlm {
namespace {

constexpr const char *choosing = "when it looked at what a layer may keep";

constexpr uint64_t bit(BufferId b) { return uint64_t{1} << b; }

template <class F>
void each_bit(uint64_t bits, F &&f) {
    for (; bits != 0; bits &= bits - 1) f(static_cast<BufferId>(__builtin_ctzll(bits)));
}

}  // namespace

PolicyEnumerator::PolicyEnumerator(std::shared_ptr<const Differentiated> layer, Extent bound, const Traits &traits,
                                   const DeviceTable &table, Cancellation *cancellation)
    : layer_(std::move(layer)), bound_(bound), traits_(traits), table_(table), cancellation_(cancellation) {
    const Program &p = *layer_->program;
    if (p.buffers.size() > 64)
        fail(MDLM_ERROR_INTERNAL, "a layer program has %zu tensors: expected at most 64", p.buffers.size());
    const DType dtype = dtype_of(p);
    for (const auto &op : p.ops) {
        uint64_t in = 0, out = 0;
        for (BufferId b : op->in) in |= bit(b);
        for (BufferId b : op->out) out |= bit(b);
        in_.push_back(in), out_.push_back(out);
        op_ns_.push_back(table_.ns(op->cost(bound_), dtype));
        forward_ns_ = add(forward_ns_, op_ns_.back());
        const int64_t workspace = op->workspace(traits_, bound_);
        workspace_.push_back(workspace > 0 ? rounded(workspace) : 0);
        in_place_.push_back(op->in_place().empty() ? no_buffer : op->out[0]);
    }
    for (const auto &op : layer_->backward) {
        backward_ns_ = add(backward_ns_, table_.ns(op->cost(bound_), dtype));
        const int64_t workspace = op->workspace(traits_, bound_);
        backward_workspace_.push_back(workspace > 0 ? rounded(workspace) : 0);
        backward_in_place_.push_back(op->in_place().empty() || op->out.empty() ? no_buffer : op->out[0]);
    }
    for (size_t i = 0; i < p.buffers.size(); ++i) producer_.push_back(p.producer(static_cast<BufferId>(i)));
    int64_t total = 0;  // that none of the sums below is larger than
    for (const Buffer &b : layer_->buffers) total = add(total, bytes_.emplace_back(rounded(b.bytes(bound_))));
    for (const auto *list : {&workspace_, &backward_workspace_})
        for (int64_t bytes : *list) total = add(total, bytes);
    for (size_t i = 0; i < p.buffers.size(); ++i) {
        const auto b = static_cast<BufferId>(i);
        if (p.always_kept(b) || p.is_side(b)) given_ |= bit(b);
        if (layer_->read[i]) reads_ |= bit(b);
        if (p.buffers[i].main == p.input && b != p.input) with_input_ |= bit(b);
    }
    // What no replay reaches need not be kept by anyone.
    const uint64_t most = needed(saved_by(0));
    for (BufferId b : tensors_of(p)) {
        if (b == p.input || p.always_kept(b)) continue;
        uint64_t family = 0;
        for (size_t i = 0; i < p.buffers.size(); ++i)
            if (p.buffers[i].main == b) family |= bit(static_cast<BufferId>(i));
        if ((family & most) != 0) candidates_.push_back(b);
    }
}

// All that stays in the frame with these main buffers: their statistics, too.
uint64_t PolicyEnumerator::saved_by(uint64_t kept) const {
    const Program &p = *layer_->program;
    uint64_t saved = with_input_ | given_;
    for (size_t i = 0; i < p.buffers.size(); ++i)
        if ((kept & bit(p.buffers[i].main)) != 0) saved |= bit(static_cast<BufferId>(i));
    return saved;
}

// What backward and its replay read.
uint64_t PolicyEnumerator::needed(uint64_t saved) const {
    uint64_t need = reads_;
    for (size_t i = in_.size(); i-- > 0;)
        if ((out_[i] & need & ~saved) != 0) need |= in_[i];
    return need;
}

// Bytes alive at any step of backward, as Scheduler orders them. What may be made in place counts from the next step
// on.
int64_t PolicyEnumerator::needed_at_least(uint64_t saved, int64_t saved_bytes, bool x_in_frame) const {
    const Program &p = *layer_->program;
    const auto forward_buffers = static_cast<BufferId>(p.buffers.size());
    birth_.assign(layer_->buffers.size(), -1), death_.assign(layer_->buffers.size(), -1);
    step_workspace_.clear();
    uint64_t at_hand = saved | given_ | bit(p.input);
    const auto read = [&](BufferId b, int32_t step) { death_[b] = step; };
    const auto make = [&](BufferId b, int32_t step, bool in_place) {
        if (birth_[b] < 0) birth_[b] = step + in_place;
        death_[b] = step;
    };
    const auto ensure = [&](auto &self, BufferId b) -> void {
        if ((at_hand & bit(b)) != 0) return;
        const int32_t i = producer_[b];
        for (BufferId in : p.ops[i]->in) self(self, in);
        const auto step = static_cast<int32_t>(step_workspace_.size());
        for (BufferId in : p.ops[i]->in) read(in, step);
        each_bit(out_[i] & ~at_hand, [&](BufferId o) { make(o, step, o == in_place_[i]); });
        at_hand |= out_[i];
        step_workspace_.push_back(workspace_[i]);
    };
    for (size_t i = 0; i < layer_->backward.size(); ++i) {
        const Op &op = *layer_->backward[i];
        for (BufferId b : op.in)
            if (b < forward_buffers) ensure(ensure, b);
        const auto step = static_cast<int32_t>(step_workspace_.size());
        for (BufferId b : op.in) read(b, step);
        for (BufferId b : op.out) make(b, step, b == backward_in_place_[i]);
        step_workspace_.push_back(backward_workspace_[i]);
    }
    change_.assign(step_workspace_.size() + 1, 0);
    for (size_t i = 0; i < layer_->buffers.size(); ++i) {
        const auto b = static_cast<BufferId>(i);
        if (death_[i] < 0 || b == layer_->output_gradient || b == layer_->input_gradient ||
            (b == p.input && !x_in_frame) || (b < forward_buffers && (given_ & bit(b)) != 0))
            continue;
        const bool kept = b < forward_buffers && (b == p.input || (saved & bit(b)) != 0);
        const int32_t first = kept ? 0 : birth_[i];
        if (first > death_[i]) continue;
        change_[first] += bytes_[i], change_[death_[i] + 1] -= bytes_[i];
    }
    int64_t alive = 0, most = saved_bytes;
    for (size_t i = 0; i < step_workspace_.size(); ++i)
        alive += change_[i], most = std::max(most, alive + step_workspace_[i]);
    return most;
}

LayerPolicy PolicyEnumerator::input_only() const { return replay_all(*layer_->program, Storage::keep); }

MeasuredPolicy PolicyEnumerator::measure(const LayerPolicy &policy, const LayoutKey &wanted) const {
    poll(cancellation_, choosing);
    const Schedule s = make_schedule(layer_, policy, true, bound_, traits_);
    LayoutKey key = wanted;
    if (!s.saves_input) key.x_in_frame = key.x_staged = false, key.shard_bytes = 0;
    const Layout l = make_layout(s, key);
    MeasuredPolicy c;
    c.policy = policy;
    c.saved = l.frame_bytes, c.host = l.staged_bytes;
    c.forward = add(l.frame_bytes, l.forward_slab), c.backward = add(l.frame_bytes, l.backward_slab);
    c.extra_ns = times_of(s, s.backward, bound_, table_).replayed_ns;
    c.saves_input = s.saves_input;
    return c;
}

std::vector<MeasuredPolicy> PolicyEnumerator::pareto(const LayoutKey &key) const {
    const Program &p = *layer_->program;
    std::vector<KeptSet> sets;
    for (uint64_t choice = 0; choice < uint64_t{1} << candidates_.size(); ++choice) {
        poll(cancellation_, choosing);
        KeptSet s;
        for (size_t i = 0; i < candidates_.size(); ++i)
            if ((choice >> i & 1) != 0) s.kept |= bit(candidates_[i]);
        const uint64_t saved = saved_by(s.kept), need = needed(saved);
        // A tensor that is kept for nothing makes it another set's twin.
        uint64_t useful = 0;
        each_bit(saved & need, [&](BufferId b) { useful |= bit(p.buffers[b].main); });
        if ((s.kept & ~useful) != 0) continue;
        const bool x = key.x_in_frame && (need & bit(p.input)) != 0;
        s.saved = x ? bytes_[p.input] : 0;
        each_bit(saved & need & ~given_, [&](BufferId b) { s.saved = add(s.saved, b == p.input ? 0 : bytes_[b]); });
        for (size_t i = 0; i < op_ns_.size(); ++i)
            if ((out_[i] & need & ~saved) != 0) s.extra_ns = add(s.extra_ns, op_ns_[i]);
        s.held = saved & need, s.x_in_frame = x;
        sets.push_back(s);
    }
    std::sort(sets.begin(), sets.end(), [](const KeptSet &a, const KeptSet &b) {
        return a.saved != b.saved         ? a.saved < b.saved
               : a.extra_ns != b.extra_ns ? a.extra_ns < b.extra_ns
                                          : a.kept < b.kept;
    });
    std::vector<MeasuredPolicy> found;
    for (const KeptSet &s : sets) {
        poll(cancellation_, choosing);
        // Of those that save no more and cost no more, the one that needs least.
        int64_t rival = INT64_MAX;
        for (const MeasuredPolicy &c : found)
            if (c.saved <= s.saved && c.extra_ns <= s.extra_ns) rival = std::min(rival, c.needs());
        if (rival <= s.saved || (rival != INT64_MAX && rival <= needed_at_least(s.held, s.saved, s.x_in_frame)))
            continue;
        LayerPolicy policy = input_only();
        each_bit(s.kept, [&](BufferId b) { policy[b] = Storage::keep; });
        found.push_back(measure(policy, key));
    }
    keep_pareto(
        found, [](const MeasuredPolicy &c) { return c.saved; }, [](const MeasuredPolicy &c) { return c.needs(); },
        [](const MeasuredPolicy &c) { return c.extra_ns; });
    return found;
}

int64_t PolicyEnumerator::passing_bytes(const LayoutKey &key) const {
    return make_layout(make_schedule(layer_, {}, false, bound_, traits_), key).forward_slab;
}

}  // namespace mdlm

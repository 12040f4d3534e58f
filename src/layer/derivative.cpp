// SPDX-License-Identifier: Apache-2.0
#include "layer/derivative.hpp"

#include <algorithm>
#include <utility>

#include "base/sizes.hpp"
#include "op/gradient_ops.hpp"
#include "op/partial_gradients.hpp"

namespace mdlm {
namespace {

// Columns of a row: `count` runs, one every `stride` columns. Sizes are any that a config may have, so nothing here
// walks over them.
struct Runs {
    int64_t first = 0, run = 0, stride = 0, count = 1;
    bool regular = true;  // false: the columns are among these

    explicit Runs(const HeadColumns &c) : first(c.at.offset), run(c.d), stride(c.at.group_stride), count(c.groups) {
        if (c.per_group > 1) {
            regular = c.at.head_stride == c.d;
            run = regular ? mul(c.per_group, c.d) : add(mul(c.per_group - 1, c.at.head_stride), c.d);
        }
        if (stride == run) run = mul(run, count), count = 1;
        if (count == 1) stride = 0;
    }
    int64_t end() const { return add(add(first, mul(count - 1, stride)), run); }
    // True where it cannot be told.
    bool may_meet(const Runs &o) const {
        if (!regular || !o.regular || stride != o.stride || count != o.count) return end() > o.first && o.end() > first;
        if (count == 1) return first < o.end() && o.first < end();
        const int64_t apart =
            first < o.first ? (o.first - first) % stride : (stride - (first - o.first) % stride) % stride;
        return apart < run || stride - apart < o.run;
    }
};

// Contributions to the gradient of one buffer, as far as they have been written.
struct Gradient {
    BufferId sum = no_buffer;         // of those that assigned, or added to, all of it
    BufferId columns_of = no_buffer;  // the buffer whose columns are being assigned one after the other,
    std::vector<Runs> assigned;       // which of them were,
    int64_t columns = 0;              // and how many
};

class Writer final : public Derivative {
public:
    Writer(Differentiated &d, bool input) : d_(d) {
        const Program &p = *d_.program;
        d_.buffers = p.buffers;
        active_.assign(p.buffers.size(), 0);
        gradients_.resize(p.buffers.size());
        sunk_.assign(p.params.size(), 0);
        active_[p.input] = input;
        for (const auto &op : p.ops) {
            bool on = false;
            for (BufferId b : op->in) on = on || active_[b];
            for (ParamId q : op->params) on = on || d_.trains[q];
            for (BufferId b : op->out) active_[b] = on;
        }
    }
    void write() {
        const Program &p = *d_.program;
        if (active_[p.output]) {
            d_.output_gradient = gradients_[p.output].sum = new_like(p.output, "gradient");
            for (auto i = static_cast<int32_t>(p.ops.size()); --i >= 0;) {
                p.ops[i]->differentiate(*this);
                d_.backward_of.resize(d_.backward.size(), i);
            }
        }
        if (active_[p.input]) write_input_gradient();
        // One sum over the group for all of them, and before anybody is told that the layer's gradients are final.
        if (partial_ != no_buffer) {
            d_.buffers[partial_].fixed = partial_elements_;
            emit_partial_gradients(*this, partial_, parts_);
        }
        d_.backward_of.resize(d_.backward.size(), 0);
        d_.read.assign(d_.buffers.size(), 0);
        for (const auto &op : d_.backward)
            for (BufferId b : op->in) d_.read[b] = 1;
    }

    bool wants(BufferId b) const override { return active_[b]; }
    bool trains(ParamId p) const override { return p != no_param && d_.trains[p]; }
    BufferId gradient(BufferId b) override {
        join_columns(b);
        return gradients_[b].sum;
    }
    Contribution contribute(BufferId b, Adds adds) override {
        const BufferId so_far = gradients_[b].sum, to = new_like(b, "gradient");
        const bool added = adds == Adds::yes && so_far != no_buffer && !awaits(b);
        unwritten_.push_back(to);
        coming_.push_back({b, to, added});
        return {to, added ? so_far : no_buffer};
    }
    BufferId contribute_columns(BufferId b, const HeadColumns &columns) override {
        Gradient &g = gradients_[b];
        const Runs runs(columns);
        check_within(b, columns, runs);
        if (g.columns_of != no_buffer &&
            std::any_of(g.assigned.begin(), g.assigned.end(), [&](const Runs &r) { return r.may_meet(runs); }))
            join_columns(b);
        if (g.columns_of == no_buffer) g.columns_of = new_like(b, "gradient"), g.assigned.clear(), g.columns = 0;
        g.assigned.push_back(runs);
        g.columns = add(g.columns, mul(mul(columns.groups, columns.per_group), columns.d));
        unwritten_.push_back(g.columns_of);
        return g.columns_of;
    }
    void contribute_as(BufferId b, BufferId gradient) override {
        BufferId &sum = gradients_[b].sum;
        if (std::count(unwritten_.begin(), unwritten_.end(), gradient) > 0) {
            coming_.push_back({b, gradient, false});
            return;
        }
        if (sum == no_buffer) {
            sum = gradient;
            return;
        }
        const BufferId both = new_like(b, "gradient");
        d_.backward.push_back(make_gradient_sum(d_.buffers[b], sum, gradient, both));
        sum = both;
    }
    BufferId new_like(BufferId b, const char *suffix) override {
        Buffer g = d_.buffers[b];
        g.name += std::string(".") + suffix;
        const auto id = static_cast<BufferId>(d_.buffers.size());
        g.main = id;
        d_.buffers.push_back(std::move(g));
        return id;
    }
    GradSink sink(Op &op, ParamId param) override {
        GradSink to;
        to.param = param, to.first = !std::exchange(sunk_[param], 1);
        const Param &p = d_.program->params[param];
        if (!p.partial_grad) return to;
        const DType type = wide(d_.buffers[d_.program->input].dtype);
        if (partial_ == no_buffer) {
            partial_ = static_cast<BufferId>(d_.buffers.size());
            d_.buffers.push_back({"partial_gradients", type, 0, 0, 1, partial_});
        }
        if (op.out.empty() || op.out.back() != partial_) op.out.push_back(partial_);
        to.out = static_cast<int32_t>(op.out.size() - 1);
        to.offset = mul(partial_elements_, size_of(type));
        const int64_t count = mul(p.full[0], p.full[1]);  // it is replicated
        parts_.push_back({param, partial_elements_, count, to.first});
        partial_elements_ = add(partial_elements_, count);
        return to;
    }
    const Buffer &buffer(BufferId b) const override { return d_.buffers[b]; }
    void emit(std::unique_ptr<Op> op) override {
        const std::vector<BufferId> made = op->out;
        d_.backward.push_back(std::move(op));
        std::erase_if(unwritten_, [&](BufferId b) { return std::count(made.begin(), made.end(), b) > 0; });
        for (size_t i = 0; i < coming_.size();) {
            const Coming c = coming_[i];
            if (std::count(made.begin(), made.end(), c.to) == 0) {
                ++i;
                continue;
            }
            coming_.erase(coming_.begin() + static_cast<std::ptrdiff_t>(i));
            if (c.added) gradients_[c.of].sum = c.to;
            else contribute_as(c.of, c.to);
        }
    }

private:
    // A contribution that an op is still to be emitted for.
    struct Coming {
        BufferId of, to;
        bool added;  // what was there is in it
    };
    bool awaits(BufferId b) const {
        return std::any_of(coming_.begin(), coming_.end(), [&](const Coming &c) { return c.of == b; });
    }

    void check_within(BufferId b, const HeadColumns &columns, const Runs &runs) const {
        const int64_t width = d_.buffers[b].per_token;
        if (runs.first < 0 || runs.end() > width || columns.at.row_stride != width)
            fail(MDLM_ERROR_INTERNAL, "gradient of %s: columns %lld to %lld of rows of %lld: expected rows of %lld",
                 d_.buffers[b].name.c_str(), static_cast<long long>(runs.first), static_cast<long long>(runs.end()),
                 static_cast<long long>(columns.at.row_stride), static_cast<long long>(width));
    }

    // The columns that were assigned become a contribution. Where there are others, all begin as zeros.
    void join_columns(BufferId b) {
        Gradient &g = gradients_[b];
        const BufferId buffer = std::exchange(g.columns_of, no_buffer);
        if (buffer == no_buffer) return;
        if (g.columns != d_.buffers[b].per_token) {
            const auto first = std::find_if(d_.backward.begin(), d_.backward.end(), [&](const auto &op) {
                return std::count(op->out.begin(), op->out.end(), buffer) > 0;
            });
            const auto at = first - d_.backward.begin();
            if (at < static_cast<std::ptrdiff_t>(d_.backward_of.size()))
                d_.backward_of.insert(d_.backward_of.begin() + at, d_.backward_of[static_cast<size_t>(at)]);
            d_.backward.insert(first, make_gradient_zero(d_.buffers[b], buffer));
        }
        contribute_as(b, buffer);
    }

    // A buffer that is nothing else.
    void write_input_gradient() {
        const BufferId input = d_.program->input, made = gradient(input);
        d_.input_gradient = made;
        if (made != no_buffer && made != d_.output_gradient) return;
        d_.input_gradient = new_like(input, "gradient");
        d_.backward.push_back(made == no_buffer ? make_gradient_zero(d_.buffers[input], d_.input_gradient)
                                                : make_gradient_copy(d_.buffers[input], made, d_.input_gradient));
    }

    Differentiated &d_;
    std::vector<char> active_;
    std::vector<Gradient> gradients_;  // by buffer
    std::vector<BufferId> unwritten_;  // given to an op that is still to be emitted
    std::vector<Coming> coming_;
    std::vector<char> sunk_;  // by parameter: an op has a sink for it
    BufferId partial_ = no_buffer;
    int64_t partial_elements_ = 0;
    std::vector<PartialGradient> parts_;
};

}  // namespace

std::shared_ptr<const Differentiated> differentiate(std::shared_ptr<const Program> program, std::vector<char> trains,
                                                    bool input) {
    auto d = std::make_shared<Differentiated>();
    d->program = std::move(program);
    d->trains = std::move(trains);
    d->read.assign(d->program->buffers.size(), 0);
    Writer(*d, input).write();
    return d;
}

}  // namespace mdlm

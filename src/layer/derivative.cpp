// SPDX-License-Identifier: Apache-2.0
#include "layer/derivative.hpp"

#include <algorithm>

#include "op/partial_gradients.hpp"

namespace mdlm {
namespace {

class Writer final : public Derivative {
public:
    Writer(Differentiated &d, bool input) : d_(d) {
        const Program &p = *d_.program;
        d_.buffers = p.buffers;
        active_.assign(p.buffers.size(), 0);
        gradient_.assign(p.buffers.size(), no_buffer);
        parts_of_.resize(p.buffers.size());
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
        if (!active_[p.output]) return;
        d_.output_gradient = new_gradient(p.output);
        for (auto i = static_cast<int32_t>(p.ops.size()); --i >= 0;) {
            p.ops[i]->differentiate(*this);
            d_.backward_of.resize(d_.backward.size(), i);
        }
        // One sum over the group for all of them, and before anybody is told that the layer's gradients are final.
        if (partial_ != no_buffer) {
            d_.buffers[partial_].fixed = partial_elements_;
            emit_partial_gradients(*this, partial_, parts_);
            d_.backward_of.resize(d_.backward.size(), 0);
        }
        if (active_[p.input]) d_.input_gradient = gradient_[p.input];
        d_.read.assign(d_.buffers.size(), 0);
        for (const auto &op : d_.backward)
            for (BufferId b : op->in) d_.read[b] = 1;
    }

    bool wants(BufferId b) const override { return active_[b]; }
    bool trains(ParamId p) const override { return p != no_param && d_.trains[p]; }
    BufferId gradient(BufferId b) const override { return gradient_[b]; }
    BufferId new_gradient(BufferId b) override {
        check_first(b);
        return gradient_[b] = new_like(b, "gradient");
    }
    BufferId new_sum(BufferId b) override {
        if (gradient_[b] == no_buffer || !parts_of_[b].empty())
            fail(MDLM_ERROR_INTERNAL, "gradient of %s: an op adds to it: expected all of it there before",
                 d_.buffers[b].name.c_str());
        return gradient_[b] = new_like(b, "gradient");
    }
    BufferId part_of_gradient(BufferId b, int64_t offset) override {
        std::vector<int64_t> &parts = parts_of_[b];
        if (gradient_[b] == no_buffer) gradient_[b] = new_like(b, "gradient");
        else if (parts.empty() || std::count(parts.begin(), parts.end(), offset) > 0)
            fail(MDLM_ERROR_INTERNAL,
                 "gradient of %s: its part at %lld has two contributions: expected the second op to add the first",
                 d_.buffers[b].name.c_str(), static_cast<long long>(offset));
        parts.push_back(offset);
        return gradient_[b];
    }
    BufferId new_like(BufferId b, const char *suffix) override {
        Buffer g = d_.buffers[b];
        g.name += std::string(".") + suffix;
        const auto id = static_cast<BufferId>(d_.buffers.size());
        g.main = id;
        d_.buffers.push_back(std::move(g));
        return id;
    }
    void set_gradient(BufferId b, BufferId g) override {
        check_first(b);
        gradient_[b] = g;
    }
    GradSink sink(Op &op, ParamId param) override {
        GradSink to{param, -1, 0};
        const Param &p = d_.program->params[param];
        if (!p.partial_grad) return to;
        const DType type = wide(d_.buffers[d_.program->input].dtype);
        if (partial_ == no_buffer) {
            partial_ = static_cast<BufferId>(d_.buffers.size());
            d_.buffers.push_back({"partial_gradients", type, 0, 0, 1, partial_});
        }
        if (op.out.empty() || op.out.back() != partial_) op.out.push_back(partial_);
        to.out = static_cast<int32_t>(op.out.size() - 1);
        to.offset = partial_elements_ * size_of(type);
        parts_.push_back({param, partial_elements_, p.full[0]});
        partial_elements_ += p.full[0];
        return to;
    }
    const Buffer &buffer(BufferId b) const override { return d_.buffers[b]; }
    void emit(std::unique_ptr<Op> op) override { d_.backward.push_back(std::move(op)); }

private:
    void check_first(BufferId b) const {
        if (gradient_[b] != no_buffer)
            fail(MDLM_ERROR_INTERNAL,
                 "gradient of %s: it has two contributions: expected the second op to add the first",
                 d_.buffers[b].name.c_str());
    }

    Differentiated &d_;
    std::vector<char> active_;
    std::vector<BufferId> gradient_;
    // By buffer: where the parts begin that were assigned; empty: all at once, or nothing yet.
    std::vector<std::vector<int64_t>> parts_of_;
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

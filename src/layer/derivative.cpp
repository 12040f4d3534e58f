#include "layer/derivative.hpp"

namespace mdlm {
namespace {

class Writer final : public Derivative {
public:
    Writer(Differentiated &d, bool input) : d_(d) {
        const Program &p = *d_.program;
        d_.buffers = p.buffers;
        active_.assign(p.buffers.size(), 0);
        gradient_.assign(p.buffers.size(), no_buffer);
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
        if (active_[p.input]) d_.input_gradient = gradient_[p.input];
        d_.read.assign(d_.buffers.size(), 0);
        for (const auto &op : d_.backward)
            for (BufferId b : op->in) d_.read[b] = 1;
    }

    bool wants(BufferId b) const override { return active_[b]; }
    bool trains(ParamId p) const override { return p != no_param && d_.trains[p]; }
    BufferId gradient(BufferId b) const override { return gradient_[b]; }
    BufferId new_gradient(BufferId b) override { return gradient_[b] = new_like(b, "gradient"); }
    BufferId new_like(BufferId b, const char *suffix) override {
        Buffer g = d_.buffers[b];
        g.name += std::string(".") + suffix;
        const auto id = static_cast<BufferId>(d_.buffers.size());
        g.main = id;
        d_.buffers.push_back(std::move(g));
        return id;
    }
    void set_gradient(BufferId b, BufferId g) override { gradient_[b] = g; }
    const Buffer &buffer(BufferId b) const override { return d_.buffers[b]; }
    void emit(std::unique_ptr<Op> op) override { d_.backward.push_back(std::move(op)); }

private:
    Differentiated &d_;
    std::vector<char> active_;
    std::vector<BufferId> gradient_;
};

}  // namespace

std::shared_ptr<const Differentiated> differentiate(std::shared_ptr<const Program> program, std::vector<char> trains, bool input) {
    auto d = std::make_shared<Differentiated>();
    d->program = std::move(program);
    d->trains = std::move(trains);
    d->read.assign(d->program->buffers.size(), 0);
    Writer(*d, input).write();
    return d;
}

}  // namespace mdlm

// SPDX-License-Identifier: Apache-2.0
// Mutants of collectives: ops of a reserved block's program, replaced by others before it runs.
#include <cstring>
#include <set>

#include "mutants.hpp"

namespace parallel {
namespace {

using mdlm::Buffer;
using mdlm::Call;
using mdlm::Op;

struct Place {
    const mdlm::Differentiated &layer;
    const Op &op;
    int rank, size;
    std::string out() const { return op.out.empty() ? "" : layer.buffers[static_cast<size_t>(op.out[0])].name; }
    mdlm::DType dtype() const { return layer.buffers[static_cast<size_t>(op.in[0])].dtype; }
    // Bytes of the whole tensor of a collective.
    size_t bytes(const Call &c) const { return static_cast<size_t>(op.cost(c.state.extent()).collective); }
};
// Which ops; and how they run instead.
using Wanted = std::function<bool(const Place &)>;
using Instead = std::function<void(const Place &, const Call &)>;

class Replaced final : public Op {
public:
    Replaced(std::unique_ptr<Op> inner, const mdlm::Differentiated &layer, int rank, int size, Instead instead,
             std::atomic<int64_t> &reached)
        : inner_(std::move(inner)), place_{layer, *inner_, rank, size}, instead_(std::move(instead)),
          reached_(reached) {
        in = inner_->in, out = inner_->out, params = inner_->params;
    }
    const char *name() const override { return inner_->name(); }
    void run(const Call &c) const override {
        ++reached_;
        instead_(place_, c);
    }
    mdlm::Cost cost(mdlm::Extent e) const override { return inner_->cost(e); }
    std::vector<int32_t> in_place() const override { return inner_->in_place(); }
    void kernels(mdlm::Extent e, const mdlm::UseKernel &use) const override { inner_->kernels(e, use); }
    int64_t scratch(mdlm::Extent e) const override { return inner_->scratch(e); }

private:
    std::unique_ptr<Op> inner_;
    Place place_;
    Instead instead_;
    std::atomic<int64_t> &reached_;
};

class OfOps final : public property::Intruder {
public:
    OfOps(Wanted wanted, Instead instead, int rank, int size, std::atomic<int64_t> &reached)
        : wanted_(std::move(wanted)), instead_(std::move(instead)), rank_(rank), size_(size), reached_(reached) {}
    // The program is this block's own, and nothing has run yet.
    void plan(mdlm::BlockPlan &p) override {
        std::set<const void *> done;
        for (const auto &layer : p.layers) {
            auto &l = const_cast<mdlm::Differentiated &>(*layer);
            if (done.insert(&l).second) replace(l, l.backward);
            auto &program = const_cast<mdlm::Program &>(*l.program);
            if (done.insert(&program).second) replace(l, program.ops);
        }
    }

private:
    void replace(const mdlm::Differentiated &layer, std::vector<std::unique_ptr<Op>> &ops) {
        for (auto &op : ops)
            if (wanted_({layer, *op, rank_, size_}))
                op = std::make_unique<Replaced>(std::move(op), layer, rank_, size_, instead_, reached_);
    }
    Wanted wanted_;
    Instead instead_;
    int rank_, size_;
    std::atomic<int64_t> &reached_;
};

Mutant mutant(std::string name, Wanted wanted, Instead instead, int size = 2) {
    return {
        std::move(name), size,
        [wanted = std::move(wanted), instead = std::move(instead)](int rank, int of, std::atomic<int64_t> &reached) {
            return std::make_unique<OfOps>(wanted, instead, rank, of, reached);
        }};
}

Wanted op_that_makes(const char *op, std::string tensor) {
    return [op, tensor = std::move(tensor)](const Place &p) {
        return std::string(p.op.name()) == op && p.out() == tensor;
    };
}
Wanted op_named(const char *op) {
    return [=](const Place &p) { return std::string(p.op.name()) == op; };
}

void left_out(const Place &, const Call &c, size_t bytes) {
    if (c.in[0] != c.out[0]) std::memcpy(c.out[0], c.in[0], bytes);
}
void reduce_left_out(const Place &p, const Call &c) { left_out(p, c, p.bytes(c)); }
void scatter_left_out(const Place &p, const Call &c) {
    const size_t part = p.bytes(c) / static_cast<size_t>(p.size);
    std::memcpy(c.out[0], static_cast<const char *>(c.in[0]) + part * static_cast<size_t>(p.rank), part);
}
void gather_left_out(const Place &p, const Call &c) {
    const size_t part = p.bytes(c) / static_cast<size_t>(p.size);
    for (int r = 0; r < p.size; ++r)
        std::memcpy(static_cast<char *>(c.out[0]) + part * static_cast<size_t>(r), c.in[0], part);
}
void gather_turned(const Place &p, const Call &c) {
    p.op.run(c);
    const size_t part = p.bytes(c) / static_cast<size_t>(p.size);
    std::vector<char> first(static_cast<char *>(c.out[0]), static_cast<char *>(c.out[0]) + part);
    std::memmove(c.out[0], static_cast<char *>(c.out[0]) + part, part * static_cast<size_t>(p.size - 1));
    std::memcpy(static_cast<char *>(c.out[0]) + part * static_cast<size_t>(p.size - 1), first.data(), part);
}

// Every rank sums all parts itself, rank 1 from the last to the first.
void summed_backwards_on_one_rank(const Place &p, const Call &c) {
    const size_t bytes = p.bytes(c);
    const int64_t count = static_cast<int64_t>(bytes) / mdlm::size_of(p.dtype());
    std::vector<char> parts(bytes * static_cast<size_t>(p.size));
    c.group.all_gather(c.in[0], parts.data(), count, p.dtype());
    for (int64_t i = 0; i < count; ++i) {
        float sum = 0;
        for (int r = 0; r < p.size; ++r) {
            const int from = p.rank == 1 ? p.size - 1 - r : r;
            const auto part =
                static_cast<float>(mdlm::load(p.dtype(), parts.data() + bytes * static_cast<size_t>(from), i));
            sum = r == 0 ? part : sum + part;
        }
        mdlm::store(p.dtype(), c.out[0], i, sum);
    }
}

// The sum over the group is taken of the accumulators, with what earlier micro-batches left there.
void accumulators_reduced(const Place &p, const Call &c) {
    if (std::string(p.op.name()) == "all_reduce_gradients") return left_out(p, c, p.bytes(c));
    p.op.run(c);
    const mdlm::Program &program = *p.layer.program;
    for (size_t i = 0; i < program.params.size(); ++i)
        if (program.params[i].partial_grad && p.layer.trains[i])
            c.group.all_reduce(c.state.grads[i], c.state.grads[i], program.params[i].full[0], mdlm::DType::f32);
}

// Only the first half of the parameters' parts is summed.
void half_reduced(const Place &p, const Call &c) {
    const size_t bytes = p.bytes(c), half = bytes / 2;
    const std::vector<char> mine(static_cast<const char *>(c.in[0]) + half, static_cast<const char *>(c.in[0]) + bytes);
    p.op.run(c);
    std::memcpy(static_cast<char *>(c.out[0]) + half, mine.data(), mine.size());
}

}  // namespace

std::vector<Mutant> op_mutants() {
    std::vector<Mutant> all;
    const auto add = [&](const std::string &name, const char *op, const std::string &tensor, const Instead &instead) {
        all.push_back(mutant("the " + name + " left out", op_that_makes(op, tensor), instead));
    };
    for (const std::string linear : {"linear_proj", "linear_fc2"}) {
        add("all-reduce after " + linear, "all_reduce", linear, reduce_left_out);
        add("reduce-scatter after " + linear, "reduce_scatter", linear, scatter_left_out);
        add("gather of the gradient before " + linear, "all_gather", linear + ".partial.gradient", gather_left_out);
    }
    for (const std::string norm : {"input_layernorm", "pre_mlp_layernorm"}) {
        add("all-reduce of the gradient of " + norm, "all_reduce", norm + ".gradient", reduce_left_out);
        add("reduce-scatter of the gradient of " + norm, "reduce_scatter", norm + ".gradient", scatter_left_out);
        add("gather of " + norm, "all_gather", norm + ".gathered", gather_left_out);
    }
    all.push_back(mutant("gathers in another order than the ranks'", op_named("all_gather"), gather_turned));
    all.push_back(
        mutant("sums not in rank order on one rank", op_named("all_reduce"), summed_backwards_on_one_rank, 4));
    all.push_back(mutant("sums of gradients not in rank order on one rank", op_named("all_reduce_gradients"),
                         summed_backwards_on_one_rank, 4));
    all.push_back(mutant("partial gradients not reduced", op_named("all_reduce_gradients"), reduce_left_out));
    all.push_back(mutant("half of the partial gradients not reduced", op_named("all_reduce_gradients"), half_reduced));
    all.push_back(mutant(
        "the gradients of the norms of q and k not reduced",
        [](const Place &p) {
            return std::string(p.op.name()) == "all_reduce_gradients" &&
                   p.layer.program->find("rotated_qk") != mdlm::no_buffer &&
                   p.layer.program->buffers[static_cast<size_t>(p.layer.program->input)].split == 1;
        },
        reduce_left_out));
    all.push_back(mutant(
        "accumulators reduced instead of contributions",
        [](const Place &p) {
            const std::string name = p.op.name();
            return name == "all_reduce_gradients" || name == "add_gradients";
        },
        accumulators_reduced));
    return all;
}

}  // namespace parallel

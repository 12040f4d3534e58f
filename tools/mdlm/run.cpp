// SPDX-License-Identifier: Apache-2.0
#include "run.hpp"

#include <algorithm>
#include <cmath>
#include <limits>

#include "../text.hpp"
#include "convert.hpp"

namespace mdlm::tools {
namespace {

void must(const Case &c, mdlm_status status) {
    if (status != MDLM_OK) bad("%s: %s: %s", c.folder.c_str(), mdlm_status_name(status), mdlm_last_error());
}

// Device memory for this rank's part of an [s, b, h] array, which is all of it or, with sequence parallelism, tokens s
// / t; and its host image.
class Buffer {
public:
    Buffer(const Case &c, mdlm_context *context, const Rank &rank, const mdlm_io &io, bool batch_first)
        : case_(c), context_(context), rank_(rank), type_(io.dtype), batch_first_(batch_first),
          tokens_(static_cast<size_t>(io.shape[batch_first ? 1 : 0])), host_(io.bytes) {
        must(c, mdlm_context_alloc(context, host_.size(), &device_));
    }
    ~Buffer() { mdlm_context_free(context_, device_, host_.size()); }
    Buffer(const Buffer &) = delete;
    Buffer &operator=(const Buffer &) = delete;

    void *device() const { return device_; }
    void write(const Array &array) {
        const size_t first = is_part() ? static_cast<size_t>(rank_.rank) * values() : 0;
        each(
            [&](size_t at, size_t i) { store(type_, host_.data() + at * dtype_size(type_), array.values[first + i]); });
        must(case_, mdlm_context_copy(context_, device_, host_.data(), host_.size()));
    }
    // All of the array.
    std::vector<double> read() {
        std::vector<double> part(values());
        must(case_, mdlm_context_copy(context_, host_.data(), device_, host_.size()));
        each([&](size_t at, size_t i) { part[i] = load(type_, host_.data() + at * dtype_size(type_)); });
        return is_part() ? rank_.gather(part) : part;
    }

private:
    size_t values() const { return host_.size() / dtype_size(type_); }
    bool is_part() const { return tokens_ != static_cast<size_t>(case_.seq_length); }
    // f(where an element lies in the block's layout, where it lies in the part's [s, b, h])
    template <class F>
    void each(F f) const {
        const auto batch = static_cast<size_t>(case_.micro_batch_size);
        const size_t width = values() / (tokens_ * batch);
        for (size_t s = 0; s < tokens_; ++s)
            for (size_t b = 0; b < batch; ++b)
                for (size_t i = 0, row = batch_first_ ? b * tokens_ + s : s * batch + b; i < width; ++i)
                    f(row * width + i, (s * batch + b) * width + i);
    }

    const Case &case_;
    mdlm_context *context_;
    const Rank &rank_;
    mdlm_dtype type_;
    bool batch_first_;
    size_t tokens_;
    std::vector<std::byte> host_;
    void *device_ = nullptr;
};

}  // namespace

Context open_context(mdlm_device_kind device, int32_t threads, mdlm_matmul matmul, mdlm_comm *comm) {
    mdlm_context_desc desc = MDLM_CONTEXT_DESC_INIT;
    desc.device = device;
    desc.num_threads = threads;
    desc.matmul = matmul;
    desc.comm = comm;
    mdlm_context *context = nullptr;
    const mdlm_status status = mdlm_context_create(&desc, &context);
    if (status != MDLM_OK) bad("%s: %s", mdlm_status_name(status), mdlm_last_error());
    return Context(context);
}

Outcome run_case(mdlm_context *context, const Rank &rank, const Case &c, const mdlm_config &config) {
    mdlm_block *made = nullptr;
    must(c, mdlm_block_create(context, &config, &made));
    const Block block(made);
    match_case(c, config, block.get());

    mdlm_shape shape = MDLM_SHAPE_INIT;
    shape.seq_length = c.seq_length;
    shape.micro_batch_size = c.micro_batch_size;
    shape.max_documents = c.cu_seqlens.empty() ? 0 : static_cast<int64_t>(c.cu_seqlens.size()) - 1;
    must(c, mdlm_block_reserve(block.get(), &shape, nullptr));
    int64_t count = 0;
    must(c, mdlm_param_count(block.get(), &count));
    std::vector<std::string> names;
    for (int64_t i = 0; i < count; ++i) {
        mdlm_param_desc desc = MDLM_PARAM_DESC_INIT;
        must(c, mdlm_param_info(block.get(), i, &desc));
        names.emplace_back(desc.name);
        const std::vector<double> &values = c.params.at(desc.name).values;
        must(c, mdlm_param_write(block.get(), i, nullptr, nullptr, nullptr, MDLM_DTYPE_F64, values.data(),
                                 values.size() * sizeof(double)));
    }
    must(c, mdlm_params_zero_grads(block.get()));

    mdlm_batch batch = MDLM_BATCH_INIT;
    batch.seq_length = c.seq_length;
    batch.micro_batch_size = c.micro_batch_size;
    batch.training = 1;
    batch.cu_seqlens = c.cu_seqlens.empty() ? nullptr : c.cu_seqlens.data();
    batch.num_documents = shape.max_documents;
    mdlm_io io = MDLM_IO_INIT;
    must(c, mdlm_block_io(block.get(), &batch, &io));
    const bool batch_first = config.batch_first != 0;
    Buffer x(c, context, rank, io, batch_first), y(c, context, rank, io, batch_first),
        dy(c, context, rank, io, batch_first), dx(c, context, rank, io, batch_first);
    x.write(c.input);
    dy.write(c.grad_output);

    mdlm_tape *made_tape = nullptr;
    must(c, mdlm_tape_create(block.get(), &made_tape));
    const Tape tape(made_tape);
    must(c, mdlm_block_forward(block.get(), &batch, x.device(), tape.get(), y.device()));
    must(c, mdlm_block_backward(block.get(), tape.get(), nullptr, dy.device(), dx.device()));
    must(c, mdlm_context_synchronize(context));

    Outcome outcome;
    outcome.output = y.read();
    outcome.grad_input = dx.read();
    for (int64_t i = 0; i < count; ++i) {
        std::vector<double> values(c.params.at(names[static_cast<size_t>(i)]).values.size());
        must(c, mdlm_param_grad_gather(block.get(), i, MDLM_DTYPE_F64, values.data(), values.size() * sizeof(double)));
        outcome.grads.emplace(names[static_cast<size_t>(i)], std::move(values));
    }
    return outcome;
}

double relative_error(const std::vector<double> &a, const std::vector<double> &b, double atol) {
    constexpr double infinite = std::numeric_limits<double>::infinity();
    if (a.size() != b.size()) return infinite;
    double most = 0, scale = 0;
    for (size_t i = 0; i < a.size(); ++i) {
        const double difference = std::fabs(a[i] - b[i]);
        if (!(difference <= std::numeric_limits<double>::max())) return infinite;
        if (difference > atol) most = std::max(most, difference);
        scale = std::max(scale, std::fabs(b[i]));
    }
    return most == 0 ? 0 : most / scale;
}

double Errors::largest() const { return std::max({output, grad_input, grad}); }

Errors errors_of(const Outcome &seen, const Case &expected, double atol) {
    Errors errors;
    errors.output = relative_error(seen.output, expected.output.values, atol);
    errors.grad_input = relative_error(seen.grad_input, expected.grad_input.values, atol);
    for (const auto &[name, values] : seen.grads) {
        const double error = relative_error(values, expected.grads.at(name).values, atol);
        if (errors.worst.empty() || error > errors.grad) {
            errors.grad = error;
            errors.worst = name;
        }
    }
    return errors;
}

}  // namespace mdlm::tools

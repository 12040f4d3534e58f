// SPDX-License-Identifier: Apache-2.0
#include "memory_world.hpp"

#include <cstdlib>
#include <new>

#include "base/sizes.hpp"
#include "block/rotary.hpp"
#include "plan/plan.hpp"
#include "support/random.hpp"

namespace property::memory {
namespace {

void check(mdlm_status status) {
    if (status != MDLM_OK) mdlm::fail(status, "%s", mdlm_last_error());
}

// The draw's storages, by way of its edits on a plan of the C ABI.
mdlm::Policies policies_of(const Draw &d, const mdlm::Traits &traits, const std::vector<std::vector<char>> &trains) {
    mdlm_plan *handle = nullptr;
    mdlm_target target = MDLM_TARGET_INIT;
    target.device = traits.kind, target.num_threads = traits.threads;
    check(mdlm_plan_create(&d.config, &d.shape, &target, &handle));
    const std::unique_ptr<mdlm_plan, void (*)(mdlm_plan *)> owner(handle, mdlm_plan_destroy);
    check(edit(d, handle));
    size_t length = 0;
    check(mdlm_plan_to_json(handle, nullptr, 0, &length));
    std::string text(length + 1, 0);
    check(mdlm_plan_to_json(handle, text.data(), text.size(), nullptr));
    mdlm_config config = d.config;
    config.memory_budget = 0;
    mdlm::Plan plan(config, d.shape, traits, trains);
    mdlm::from_json(plan, {text.data(), length});
    return plan.policies();
}

}  // namespace

void Bytes::Free::operator()(char *at) const { std::free(at); }

Bytes::Bytes(int64_t bytes) : bytes_(bytes) {
    void *at = nullptr;
    if (posix_memalign(&at, 64, static_cast<size_t>(bytes)) != 0) throw std::bad_alloc();
    at_.reset(static_cast<char *>(at));
    std::memset(at, 0xff, static_cast<size_t>(bytes));
}

std::unique_ptr<mdlm::Device> make_device(mdlm_device_kind kind, int32_t threads) {
    return kind == MDLM_DEVICE_REFERENCE ? mdlm::make_reference_device()
                                         : mdlm::make_cpu_device(mdlm::make_own_pool(threads));
}

World::World(Draw d, std::unique_ptr<mdlm::Device> device, std::shared_ptr<mdlm::Comm> comm) : draw_(std::move(d)) {
    engine_ =
        std::make_unique<mdlm::Engine>(std::move(device), mdlm::Comms{std::move(comm), nullptr, 0}, nullptr, nullptr);
    block_ = std::make_unique<mdlm::Block>(*engine_, draw_.config);
    const auto count = static_cast<int64_t>(params().entries().size());
    for (int64_t i = 0; i < count; ++i) block_->set_requires_grad(i, !frozen(draw_, i, params().at(i).item, count));
    const mdlm::Policies policies = policies_of(draw_, engine_->device->traits(), params().trains());
    block_->reserve(&draw_.shape, &policies);
    const mdlm::DType type = config().params_dtype;
    for (size_t i = 0; i < params().entries().size(); ++i) {
        const mdlm::ParamEntry &p = params().entries()[i];
        Bytes values(p.bytes);
        mdlm_test::fill_uniform(type, values.get(), p.elements, draw_.seed * 1000 + i, 0.5);
        engine_->device->upload(p.data, values.get(), static_cast<size_t>(p.bytes));
    }
    for (size_t i = 0; i < draw_.micro.size(); ++i) {
        const int64_t parts = config().sequence_parallel ? config().tensor_model_parallel_size : 1;
        const int64_t elements = draw_.micro[i].elements(config().hidden_size) / parts;
        for (auto *list : {&x_, &dy_}) {
            Bytes values(elements * mdlm::size_of(type));
            mdlm_test::fill_uniform(type, values.get(), elements, draw_.seed * 8 + i * 2 + (list == &dy_));
            list->push_back(std::move(values));
        }
    }
    rotary_ = Bytes(std::max<int64_t>(1, mdlm::rotary_table_bytes(config(), draw_.shape.seq_length)));
    if (mdlm::rotary_table_bytes(config(), 1) > 0)
        mdlm::fill_rotary_table(config(), draw_.shape.seq_length, *engine_->device, rotary_.get());
}

mdlm::Extent World::extent(size_t micro) const {
    const mdlm_batch &b = draw_.micro[micro].batch;
    return {b.seq_length * b.micro_batch_size, b.seq_length};
}

mdlm::RunState World::state(const Event &event, mdlm::CallState &call) const {
    const MicroBatch &m = draw_.micro[event.micro];
    mdlm_batch batch = m.batch;
    if (event.kind == Event::Kind::evaluate) batch.training = event.training;
    call.reserve(draw_.shape.seq_length);
    const bool packed = !m.documents.empty();
    mdlm::RunState s = mdlm::make_state(config(), batch, packed ? m.documents.data() : nullptr,
                                        packed ? static_cast<int64_t>(m.documents.size()) - 1 : 0, call);
    s.rank = engine_->group.rank();
    if (mdlm::rotary_table_bytes(config(), 1) > 0) s.cos = rotary_.get(), s.sin = rotary_.get() + rotary_.size() / 2;
    return s;
}

Outcome World::begin() {
    Outcome o;
    for (const Event &e : draw_.events) {
        const int64_t bytes = x_[e.micro].size();
        const bool back = e.kind == Event::Kind::backward;
        o.y.push_back(back ? Bytes() : Bytes(bytes));
        o.dx.push_back(back ? Bytes(bytes) : Bytes());
        if (back && draw_.micro[e.micro].dx_over_dy) std::memcpy(o.dx.back().get(), dy(e.micro), size_t(bytes));
    }
    block_->params().zero_grads(*engine_->device);
    return o;
}

void World::finish(Outcome &o) const {
    int64_t bytes = 0;
    for (const mdlm::ParamEntry &p : params().entries()) bytes += p.grad_bytes;
    o.grads = Bytes(std::max<int64_t>(bytes, 1));
    bytes = 0;
    for (const mdlm::ParamEntry &p : params().entries()) {
        if (p.grad_bytes > 0) engine_->device->download(o.grads.get() + bytes, p.grad, size_t(p.grad_bytes));
        bytes += p.grad_bytes;
    }
}

const void *World::dy_of(const Event &event, const Outcome &outcome, size_t index) const {
    return draw_.micro[event.micro].dx_over_dy ? outcome.dx[index].get() : dy(event.micro);
}

// The caller's buffers where the device's memory is its own: made before the passes, read after the last.
struct World::Apart {
    std::vector<std::pair<Bytes *, mdlm::Memory>> all;
    char *of(World &world, Bytes &bytes, bool filled) {
        mdlm::Memory memory = world.engine_->device_memory.allocate(mdlm::rounded(bytes.size()), "a buffer");
        char *at = memory.get();
        if (filled) world.engine_->device->upload(at, bytes.get(), static_cast<size_t>(bytes.size()));
        all.emplace_back(&bytes, std::move(memory));
        return at;
    }
};

Outcome World::run() {
    Outcome o = begin();
    if (!engine_->device->traits().asynchronous) {
        run_passes([this](size_t micro) { return x(micro); }, [&](size_t i) { return o.y[i].get(); },
                   [&](size_t i) { return dy_of(draw_.events[i], o, i); }, [&](size_t i) { return o.dx[i].get(); });
        finish(o);
        return o;
    }
    Apart inputs, outputs;
    std::vector<char *> x, dy, y, dx;
    for (Bytes &b : x_) x.push_back(inputs.of(*this, b, true));
    for (Bytes &b : dy_) dy.push_back(inputs.of(*this, b, true));
    for (Bytes &b : o.y) y.push_back(b.size() > 0 ? outputs.of(*this, b, false) : nullptr);
    for (Bytes &b : o.dx) dx.push_back(b.size() > 0 ? outputs.of(*this, b, true) : nullptr);
    run_passes([&](size_t micro) { return x[micro]; }, [&](size_t i) { return y[i]; },
               [&](size_t i) -> const void * {
                   const size_t micro = draw_.events[i].micro;
                   return draw_.micro[micro].dx_over_dy ? dx[i] : dy[micro];
               },
               [&](size_t i) { return dx[i]; });
    for (auto &[bytes, memory] : outputs.all)
        engine_->device->download(bytes->get(), memory.get(), static_cast<size_t>(bytes->size()));
    finish(o);
    return o;
}

template <class X, class Y, class Dy, class Dx>
void World::run_passes(X &&x, Y &&y, Dy &&dy, Dx &&dx) {
    std::vector<mdlm::Tape *> tapes(draw_.micro.size(), nullptr);
    for (size_t i = 0; i < draw_.events.size(); ++i) {
        const Event &e = draw_.events[i];
        const MicroBatch &m = draw_.micro[e.micro];
        mdlm_batch batch = m.batch;
        if (!m.documents.empty())
            batch.cu_seqlens = m.documents.data(), batch.num_documents = static_cast<int64_t>(m.documents.size()) - 1;
        if (e.kind == Event::Kind::evaluate) {
            batch.training = e.training;
            block_->forward(&batch, x(e.micro), nullptr, y(i));
        } else if (e.kind == Event::Kind::backward) {
            block_->backward(tapes[e.micro], nullptr, dy(i), draw_.shape.input_requires_grad != 0 ? dx(i) : nullptr);
            block_->release_tape(*tapes[e.micro]);
        } else {
            mdlm::Tape &tape = block_->acquire_tape();
            tapes[e.micro] = &tape;
            block_->forward(&batch, x(e.micro), &tape, y(i));
            if (e.kind == Event::Kind::abandon) block_->release_tape(tape);
        }
    }
}

}  // namespace property::memory

// SPDX-License-Identifier: Apache-2.0
#include "step.hpp"

#include <bit>
#include <cmath>
#include <cstdio>
#include <cstring>
#include <stdexcept>

#include "api/objects.hpp"
#include "support/hold.hpp"
#include "support/rig.hpp"

namespace property {
namespace {

using mdlm_test::Buffer;
using mdlm_test::fnv;

using mdlm_test::hold;

template <class T, void (*Destroy)(T *)>
struct Handle {
    T *at = nullptr;
    Handle() = default;
    Handle(Handle &&o) noexcept : at(std::exchange(o.at, nullptr)) {}
    ~Handle() { Destroy(at); }
    operator T *() const { return at; }
};

struct Slot {
    size_t bytes = 0;
    Buffer x, y, dy, dx;
    size_t tape = 0;
};

class Run {
public:
    Run(const Draw &d, const How &how, Outcome &out)
        : d_(d), how_(how), which_(how.which), intruder_(how.intruder), out_(out),
          type_(static_cast<mdlm::DType>(d.config.params_dtype)),
          parts_(d.config.sequence_parallel != 0 ? d.config.tensor_model_parallel_size : 1) {
        mdlm_context_desc desc = MDLM_CONTEXT_DESC_INIT;
        desc.num_threads = how.threads;
        desc.comm = how.comm;
        int32_t rank = 0;
        if (how.comm != nullptr) OK(mdlm_comm_rank(how.comm, &rank, nullptr));
        rank_ = rank;
        auto device = make_device();
        Intruder *intruder = intruder_;
        if (intruder != nullptr) device = intruder->device(std::move(device));
        context_.at = new mdlm_context(std::make_shared<mdlm::Gate>(), std::move(device), desc);
    }

    void all() {
        open();
        for (const Event &e : d_.events) one(e);
        check_evaluations();
        for (size_t i = 0; i < params_.size(); ++i) {
            const Param &p = params_[i];
            if (p.info.requires_grad == 0) continue;
            const std::string name = "gradient of " + std::string(p.info.name);
            keep(name, p.grad, p.info.grad_bytes);
            if (p.info.partition_dim < 0) out_.replicated.push_back(name);
            if (!how_.whole) continue;
            std::vector<double> whole(
                static_cast<size_t>(p.info.full_shape[0] * (p.info.ndim == 2 ? p.info.full_shape[1] : 1)));
            OK(mdlm_param_grad_gather(block_, static_cast<int64_t>(i), MDLM_DTYPE_F64, whole.data(),
                                      whole.size() * sizeof(double)));
            out_.values.emplace_back(name, std::move(whole));
        }
    }

private:
    struct Param {
        mdlm_param_desc info = MDLM_PARAM_DESC_INIT;
        void *grad = nullptr;
    };
    struct Evaluation {
        size_t micro;
        bool training;
        std::vector<unsigned char> y;
    };

    std::unique_ptr<mdlm::Device> make_device() const {
        if (how_.device == MDLM_DEVICE_REFERENCE) return mdlm::make_reference_device();
        const bool library = d_.seed % 2 == 1 && mdlm::cpu_has_onednn();
        return mdlm::make_cpu_device(mdlm::make_own_pool(how_.threads), library ? MDLM_MATMUL_ONEDNN : MDLM_MATMUL_OWN);
    }

    // This rank's part of an array [s, b, h], or [b, s, h], of numbers drawn for the whole of it; where all is coarse,
    // of each what bf16 holds.
    void fill(uint64_t seed, size_t micro, void *to) const {
        Random r(seed);
        each(micro, [&](int64_t, int64_t local) {
            const auto value = static_cast<float>(r.real(-1.5, 1.5));
            if (local < 0) return;
            const uint32_t bits = std::bit_cast<uint32_t>(value);
            mdlm::store(type_, to, local, d_.coarse ? std::bit_cast<float>(bits & 0xffff0000u) : value);
        });
    }
    // f(index in the whole, index in this rank's part or -1), in the order of the whole.
    template <class F>
    void each(size_t micro, F &&f) const {
        const mdlm_batch &b = d_.micro[micro].batch;
        const int64_t hidden = d_.config.hidden_size, part = b.seq_length / parts_,
                      first = parts_ > 1 ? rank_ * part : 0;
        for (int64_t i = 0; i < d_.micro[micro].elements(hidden); ++i) {
            const int64_t row = i / hidden,
                          seq = d_.config.batch_first != 0 ? row % b.seq_length : row / b.micro_batch_size;
            const int64_t within =
                d_.config.batch_first != 0 ? row / b.seq_length * part + seq - first : row - first * b.micro_batch_size;
            f(i, seq < first || seq >= first + part ? -1 : within * hidden + i % hidden);
        }
    }

    void open() {
        OK(mdlm_block_create(context_, &d_.config, &block_.at));
        int64_t count = 0;
        OK(mdlm_param_count(block_, &count));
        params_.resize(static_cast<size_t>(count));
        for (int64_t i = 0; i < count; ++i) {
            OK(mdlm_param_info(block_, i, &params_[i].info));
            if (frozen(d_, i, params_[i].info.layer, count)) OK(mdlm_param_set_requires_grad(block_, i, 0));
        }
        make_plan();
        OK(mdlm_block_reserve(block_, &d_.shape, plan_));
        uses_shards();
        if (intruder_ != nullptr) intruder_->plan(const_cast<mdlm::BlockPlan &>(block_.at->block.plan()));
        for (int64_t i = 0; i < count; ++i) write_param(i);
        for (int32_t i = 0; i < d_.shape.in_flight; ++i) {
            tapes_.emplace_back();
            OK(mdlm_tape_create(block_, &tapes_.back().at));
            free_.push_back(static_cast<size_t>(i));
        }
        slots_.resize(d_.micro.size());
        for (size_t m = 0; m < slots_.size(); ++m) {
            Slot &s = slots_[m];
            mdlm_io io = MDLM_IO_INIT;
            mdlm_batch batch = d_.micro[m].batch;
            OK(mdlm_block_io(block_, &batch, &io));
            s.bytes = io.bytes;
            hold(s.bytes * static_cast<size_t>(parts_) ==
                     static_cast<size_t>(d_.micro[m].elements(d_.config.hidden_size)) * d_.element(),
                 "bytes of a rank's x: " + std::to_string(s.bytes));
            s.x = Buffer(s.bytes), s.y = Buffer(s.bytes), s.dy = Buffer(s.bytes), s.dx = Buffer(s.bytes);
            fill(d_.seed * 64 + m * 2 + 1, m, s.dy.get());
        }
    }

    void make_plan() {
        OK(mdlm_block_plan(block_, &d_.shape, &plan_.at));
        if (which_ == Which::keep_everything) OK(keep_everything(d_, plan_));
        else OK(edit(d_, plan_));
        for (int64_t i = 0; i < items(); ++i) {
            mdlm_plan_layer layer = MDLM_PLAN_LAYER_INIT;
            OK(mdlm_plan_get_layer(plan_, i, &layer));
            predicted_ops_ += layer.replayed_ops, predicted_flops_ += layer.replayed_flops;
            forward_flops_ += layer.forward_flops, backward_flops_ += layer.backward_flops;
            out_.units_of_several = out_.units_of_several || (layer.unit_count > 1 && layer.replayed_ops > 0);
        }
        if (which_ == Which::keep_everything) hold(predicted_ops_ == 0, "the plan that keeps everything replays ops");
        else if (d_.edits.through_json) read_back();
    }

    void uses_shards() {
        for (const mdlm::PlanEntry &e : block_.at->block.plan().forward)
            out_.shards = out_.shards || e.kind == mdlm::PlanEntry::Kind::shard_input;
    }

    // The same plan, out of its text.
    void read_back() {
        size_t length = 0;
        OK(mdlm_plan_to_json(plan_, nullptr, 0, &length));
        std::vector<char> text(length + 1);
        OK(mdlm_plan_to_json(plan_, text.data(), text.size(), nullptr));
        mdlm_plan_destroy(std::exchange(plan_.at, nullptr));
        OK(mdlm_plan_from_json(&d_.config, &d_.shape, nullptr, text.data(), length, &plan_.at));
    }

    int64_t items() const { return d_.config.num_layers + (d_.config.final_layernorm != 0); }

    void write_param(int64_t i) {
        Param &p = params_[static_cast<size_t>(i)];
        OK(mdlm_param_info(block_, i, &p.info));
        OK(mdlm_param_data(block_, i, nullptr, &p.grad));
        if (p.grad != nullptr) std::memset(p.grad, 0xff, p.info.grad_bytes);  // the first backward overwrites
        const int64_t columns = p.info.ndim == 2 ? p.info.full_shape[1] : 1, elements = p.info.full_shape[0] * columns;
        const bool norm = p.info.ndim == 1 && std::string(p.info.name).find("norm.weight") != std::string::npos;
        const double scale = p.info.ndim == 2 ? 1.0 / std::sqrt(static_cast<double>(columns)) : 0.3;
        Random r(d_.seed * 4096 + static_cast<uint64_t>(i));
        std::vector<float> values(static_cast<size_t>(elements));
        for (float &v : values)
            v = static_cast<float>(scale * r.real(-1, 1) +
                                   (norm && d_.config.layernorm_zero_centered_gamma == 0 ? 1 : 0));
        if (d_.coarse)
            for (float &v : values) v = mdlm::bf16(v);
        OK(mdlm_param_write(block_, i, nullptr, nullptr, nullptr, MDLM_DTYPE_F32, values.data(), values.size() * 4));
    }

    void one(const Event &e) {
        switch (e.kind) {
        case Event::Kind::forward: return forward(e.micro, true);
        case Event::Kind::abandon: return forward(e.micro, false);
        case Event::Kind::backward: return backward(e.micro);
        case Event::Kind::evaluate: return evaluate(e);
        }
    }

    // Calls forward with documents and an input that are gone when it returns, as far as the contract allows.
    void pass(size_t m, mdlm_tape *tape, bool training, void *y, bool borrowed) {
        const MicroBatch &micro = d_.micro[m];
        Slot &slot = slots_[m];
        std::vector<int32_t> documents = micro.documents;
        mdlm_batch batch = micro.batch;
        batch.training = training;
        const auto packed = static_cast<int64_t>(documents.size()) - 1;
        const bool by_tape = tape != nullptr && micro.documents_by_tape;
        if (tape != nullptr)
            OK(mdlm_tape_set_documents(tape, by_tape ? documents.data() : nullptr, by_tape ? packed : 0));
        if (!documents.empty() && !by_tape) batch.cu_seqlens = documents.data(), batch.num_documents = packed;
        Buffer mine;
        if (!borrowed) mine = Buffer(slot.bytes);
        Buffer &x = borrowed ? slot.x : mine;
        fill(d_.seed * 64 + m * 2, m, x.get());
        const uint64_t before = fnv(x.get(), slot.bytes);
        OK(mdlm_block_forward(block_, &batch, x.get(), tape, y));
        hold(fnv(x.get(), slot.bytes) == before, "forward changed x");
        std::fill(documents.begin(), documents.end(), 0);
        if (!borrowed) std::memset(x.get(), 0xff, slot.bytes);
        // A mutant may read it; for others a sanitizer sees that.
        if (intruder_ != nullptr) spent_.push_back(std::move(mine));
    }

    void forward(size_t m, bool goes_on) {
        Slot &slot = slots_[m];
        slot.tape = free_.back();
        mdlm_tape *tape = tapes_[slot.tape];
        pass(m, tape, d_.micro[m].batch.training != 0, slot.y.get(), d_.shape.input_storage == MDLM_INPUT_BORROW);
        if (!goes_on) {
            OK(mdlm_tape_reset(tape));
            return;
        }
        free_.pop_back();
        keep_rows("y of micro-batch " + std::to_string(m), m, slot.y.get());
        std::memset(slot.y.get(), 0xff, slot.bytes);
    }

    struct Ready {
        Run *run;
        std::vector<int64_t> layers;
        std::vector<uint64_t> digests;
    };
    static mdlm_status ready(void *payload, int64_t layer) {
        auto &r = *static_cast<Ready *>(payload);
        r.layers.push_back(layer);
        r.digests.push_back(r.run->digest(layer));
        return MDLM_OK;
    }
    uint64_t digest(int64_t layer) const {
        uint64_t hash = 1;
        for (const Param &p : params_)
            if (p.info.layer == layer && p.grad != nullptr) hash = fnv(p.grad, p.info.grad_bytes, hash);
        return hash;
    }

    void backward(size_t m) {
        Slot &slot = slots_[m];
        const bool in_place = d_.micro[m].dx_over_dy && d_.shape.input_requires_grad != 0;
        void *dx = d_.shape.input_requires_grad == 0 ? nullptr : in_place ? slot.dy.get() : slot.dx.get();
        mdlm_backward_options options = MDLM_BACKWARD_OPTIONS_INIT;
        options.overwrite_grads = !begun_;
        begun_ = true;
        Ready called{this, {}, {}};
        options.grad_ready = ready, options.payload = &called;
        mdlm_tape *tape = tapes_[slot.tape];
        if (intruder_ != nullptr) intruder_->backward(true);
        const bool borrowed = d_.shape.input_storage == MDLM_INPUT_BORROW;
        const auto given = [&] {
            return fnv(slot.dy.get(), in_place ? 0 : slot.bytes, fnv(slot.x.get(), borrowed ? slot.bytes : 0));
        };
        const uint64_t before = given();
        OK(mdlm_block_backward(block_, tape, &options, slot.dy.get(), dx));
        hold(given() == before, "backward changed x or dy");
        if (intruder_ != nullptr) intruder_->backward(false);
        if (dx != nullptr) keep_rows("dx of micro-batch " + std::to_string(m), m, dx);
        std::memset(slot.x.get(), 0xff, slot.x.size());
        check_ready(called);
        check_stats(m, tape);
        free_.insert(free_.begin(), slot.tape);
    }

    void check_ready(const Ready &called) const {
        std::vector<int64_t> expected;
        for (int64_t layer = items(); layer-- > 0;)
            for (const Param &p : params_)
                if (p.info.layer == layer && p.info.requires_grad != 0) {
                    expected.push_back(layer);
                    break;
                }
        hold(called.layers == expected, "grad_ready: not once for each layer that trains, from the last to the first");
        for (size_t i = 0; i < expected.size(); ++i)
            hold(called.digests[i] == digest(expected[i]),
                 "grad_ready of layer " + std::to_string(expected[i]) + ": its gradients changed after it");
    }

    void check_stats(size_t m, mdlm_tape *tape) {
        mdlm_tape_stats s = MDLM_TAPE_STATS_INIT;
        OK(mdlm_tape_get_stats(tape, &s));
        out_.replayed_ops += s.replayed_ops, out_.replayed_matmul_flops += s.replayed_matmul_flops,
            out_.host_bytes += s.host_bytes;
        if (intruder_ != nullptr) return;
        const auto same = [&](const char *what, uint64_t seen, uint64_t predicted) {
            hold(seen == predicted,
                 std::string(what) + " = " + std::to_string(seen) + ", the plan says " + std::to_string(predicted));
        };
        same("replayed_ops", s.replayed_ops, predicted_ops_);
        const mdlm_batch &b = d_.micro[m].batch;
        const int64_t most =
            d_.shape.max_tokens != 0 ? d_.shape.max_tokens : d_.shape.seq_length * d_.shape.micro_batch_size;
        if (b.seq_length != d_.shape.seq_length || b.seq_length * b.micro_batch_size != most) return;
        same("replayed_flops", s.replayed_flops, predicted_flops_);
        same("backward_flops", s.backward_flops, backward_flops_);
        same("forward_flops", s.forward_flops, forward_flops_);
    }

    void evaluate(const Event &e) {
        Evaluation done{e.micro, e.training, std::vector<unsigned char>(slots_[e.micro].bytes)};
        Buffer y(done.y.size());
        pass(e.micro, nullptr, e.training, y.get(), false);
        std::memcpy(done.y.data(), y.get(), done.y.size());
        keep("y of evaluation " + std::to_string(evaluations_.size()), done.y.data(), done.y.size());
        evaluations_.push_back(std::move(done));
    }

    // An evaluation gives the bits of a forward with a tape.
    void check_evaluations() {
        for (const Evaluation &e : evaluations_) {
            Buffer y(e.y.size());
            pass(e.micro, tapes_[0], e.training, y.get(), false);
            OK(mdlm_tape_reset(tapes_[0]));
            hold(intruder_ != nullptr || std::memcmp(y.get(), e.y.data(), e.y.size()) == 0,
                 "evaluation of micro-batch " + std::to_string(e.micro) + ": other bits than the forward with a tape");
        }
    }

    // Of x's shape.
    void keep_rows(const std::string &name, size_t m, const void *at) {
        const size_t bytes = slots_[m].bytes;
        keep(name, at, bytes);
        if (parts_ == 1) out_.replicated.push_back(name);
        if (!how_.whole) return;
        std::vector<double> whole(static_cast<size_t>(d_.micro[m].elements(d_.config.hidden_size)));
        const auto count = static_cast<int64_t>(bytes / d_.element());
        std::vector<double> part(static_cast<size_t>(count)), all(static_cast<size_t>(count * parts_));
        for (int64_t i = 0; i < count; ++i) part[static_cast<size_t>(i)] = mdlm::load(type_, at, i);
        if (parts_ > 1) OK(mdlm_comm_all_gather(how_.comm, part.data(), all.data(), count, MDLM_DTYPE_F64, 0));
        else all = part;
        const int64_t mine = std::exchange(rank_, 0);
        for (; rank_ < parts_; ++rank_)
            each(m, [&](int64_t i, int64_t local) {
                if (local >= 0) whole[static_cast<size_t>(i)] = all[static_cast<size_t>(rank_ * count + local)];
            });
        rank_ = mine;
        out_.values.emplace_back(name, std::move(whole));
    }
    void keep(std::string name, const void *at, size_t bytes) {
        const auto *begin = static_cast<const unsigned char *>(at);
        out_.bits.emplace_back(std::move(name), std::vector<unsigned char>(begin, begin + bytes));
    }

    const Draw &d_;
    const How how_;
    Which which_;
    Intruder *intruder_;
    Outcome &out_;
    mdlm::DType type_;
    int64_t parts_, rank_ = 0;  // that the sequence is cut into, and which is this rank's
    Handle<mdlm_context, mdlm_context_destroy> context_;
    Handle<mdlm_block, mdlm_block_destroy> block_;
    Handle<mdlm_plan, mdlm_plan_destroy> plan_;
    std::vector<Handle<mdlm_tape, mdlm_tape_destroy>> tapes_;
    std::vector<size_t> free_;
    std::vector<Param> params_;
    std::vector<Slot> slots_;
    std::vector<Buffer> spent_;
    std::vector<Evaluation> evaluations_;
    uint64_t predicted_ops_ = 0, predicted_flops_ = 0, forward_flops_ = 0, backward_flops_ = 0;
    bool begun_ = false;
};

}  // namespace

Outcome run(const Draw &draw, const How &how) {
    Outcome out;
    try {
        Run(draw, how, out).all();
    } catch (const std::exception &e) {
        out.failure = e.what();
        if (how.comm != nullptr) mdlm_comm_abort(how.comm);
    }
    return out;
}

std::string difference(const Outcome &a, const Outcome &b) {
    for (const Outcome *o : {&a, &b})
        if (!o->failure.empty()) return o->failure;
    if (a.bits.size() != b.bits.size()) return "number of results";
    for (size_t i = 0; i < a.bits.size(); ++i) {
        const auto &[name, x] = a.bits[i];
        const auto &[other, y] = b.bits[i];
        if (name != other || x.size() != y.size()) return name + ": another shape";
        for (size_t byte = 0; byte < x.size(); ++byte)
            if (x[byte] != y[byte]) return name + ": byte " + std::to_string(byte) + " of " + std::to_string(x.size());
    }
    return "";
}

}  // namespace property

// SPDX-License-Identifier: Apache-2.0
#include "step.hpp"

#include <cstring>
#include <stdexcept>

#include "step_run.hpp"

namespace property {

void StepRun::all() {
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

void StepRun::one(const Event &e) {
    switch (e.kind) {
    case Event::Kind::forward: return forward(e.micro, true);
    case Event::Kind::abandon: return forward(e.micro, false);
    case Event::Kind::backward: return backward(e.micro);
    case Event::Kind::evaluate: return evaluate(e);
    }
}

void StepRun::pass(size_t m, mdlm_tape *tape, bool training, void *y, bool borrowed) {
    const MicroBatch &micro = d_.micro[m];
    MicroBuffers &slot = slots_[m];
    std::vector<int32_t> documents = micro.documents;
    mdlm_batch batch = micro.batch;
    batch.training = training;
    const auto packed = static_cast<int64_t>(documents.size()) - 1;
    const bool by_tape = tape != nullptr && micro.documents_by_tape;
    if (tape != nullptr) OK(mdlm_tape_set_documents(tape, by_tape ? documents.data() : nullptr, by_tape ? packed : 0));
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

void StepRun::forward(size_t m, bool goes_on) {
    MicroBuffers &slot = slots_[m];
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

mdlm_status StepRun::ready(void *payload, int64_t layer) {
    auto &r = *static_cast<Ready *>(payload);
    r.layers.push_back(layer);
    r.digests.push_back(r.run->digest(layer));
    return MDLM_OK;
}

uint64_t StepRun::digest(int64_t layer) const {
    uint64_t hash = 1;
    for (const Param &p : params_)
        if (p.info.layer == layer && p.grad != nullptr) hash = fnv(p.grad, p.info.grad_bytes, hash);
    return hash;
}

void StepRun::backward(size_t m) {
    MicroBuffers &slot = slots_[m];
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

void StepRun::check_ready(const Ready &called) const {
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

void StepRun::check_stats(size_t m, mdlm_tape *tape) {
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

void StepRun::evaluate(const Event &e) {
    Evaluation done{e.micro, e.training, std::vector<unsigned char>(slots_[e.micro].bytes)};
    Buffer y(done.y.size());
    pass(e.micro, nullptr, e.training, y.get(), false);
    std::memcpy(done.y.data(), y.get(), done.y.size());
    keep("y of evaluation " + std::to_string(evaluations_.size()), done.y.data(), done.y.size());
    evaluations_.push_back(std::move(done));
}

void StepRun::check_evaluations() {
    for (const Evaluation &e : evaluations_) {
        Buffer y(e.y.size());
        pass(e.micro, tapes_[0], e.training, y.get(), false);
        OK(mdlm_tape_reset(tapes_[0]));
        hold(intruder_ != nullptr || std::memcmp(y.get(), e.y.data(), e.y.size()) == 0,
             "evaluation of micro-batch " + std::to_string(e.micro) + ": other bits than the forward with a tape");
    }
}

void StepRun::keep_rows(const std::string &name, size_t m, const void *at) {
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

void StepRun::keep(std::string name, const void *at, size_t bytes) {
    const auto *begin = static_cast<const unsigned char *>(at);
    out_.bits.emplace_back(std::move(name), std::vector<unsigned char>(begin, begin + bytes));
}

Outcome run(const Draw &draw, const How &how) {
    Outcome out;
    try {
        StepRun(draw, how, out).all();
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

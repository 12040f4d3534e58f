// SPDX-License-Identifier: Apache-2.0
// A step's block, plan, parameters and inputs.
#include <bit>
#include <cmath>
#include <cstring>

#include "step_run.hpp"

namespace property {

std::unique_ptr<mdlm::Device> StepRun::make_device() const {
    if (how_.device == MDLM_DEVICE_REFERENCE) return mdlm::make_reference_device();
    const bool library = d_.seed % 2 == 1 && mdlm::cpu_has_onednn();
    return mdlm::make_cpu_device(mdlm::make_own_pool(how_.threads), library ? MDLM_MATMUL_ONEDNN : MDLM_MATMUL_OWN);
}

void StepRun::fill(uint64_t seed, size_t micro, void *to) const {
    Random r(seed);
    each(micro, [&](int64_t, int64_t local) {
        const auto value = static_cast<float>(r.real(-1.5, 1.5));
        if (local < 0) return;
        const uint32_t bits = std::bit_cast<uint32_t>(value);
        mdlm::store(type_, to, local, d_.coarse ? std::bit_cast<float>(bits & 0xffff0000u) : value);
    });
}

void StepRun::open() {
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
        MicroBuffers &s = slots_[m];
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

void StepRun::make_plan() {
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

void StepRun::uses_shards() {
    for (const mdlm::PlanEntry &e : block_.at->block.plan().forward)
        out_.shards = out_.shards || e.kind == mdlm::PlanEntry::Kind::shard_input;
}

void StepRun::read_back() {
    size_t length = 0;
    OK(mdlm_plan_to_json(plan_, nullptr, 0, &length));
    std::vector<char> text(length + 1);
    OK(mdlm_plan_to_json(plan_, text.data(), text.size(), nullptr));
    mdlm_plan_destroy(std::exchange(plan_.at, nullptr));
    OK(mdlm_plan_from_json(&d_.config, &d_.shape, nullptr, text.data(), length, &plan_.at));
}

void StepRun::write_param(int64_t i) {
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
        v = static_cast<float>(scale * r.real(-1, 1) + (norm && d_.config.layernorm_zero_centered_gamma == 0 ? 1 : 0));
    if (d_.coarse)
        for (float &v : values) v = mdlm::bf16(v);
    OK(mdlm_param_write(block_, i, nullptr, nullptr, nullptr, MDLM_DTYPE_F32, values.data(), values.size() * 4));
}

}  // namespace property

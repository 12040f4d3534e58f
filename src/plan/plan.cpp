// SPDX-License-Identifier: Apache-2.0
#include "plan/plan.hpp"

#include <algorithm>
#include <cstdio>

#include "base/sizes.hpp"

namespace mdlm {

Plan::Plan(const mdlm_config &config, const mdlm_shape &shape, const Traits &traits,
           std::vector<std::vector<char>> trains, DeviceTable table, int64_t tables_bytes, Cancellation *cancellation,
           const Chain *chain)
    : config_(resolve(config)), shape_(shape), table_(std::move(table)), traits_(table_.traits(traits)),
      tables_bytes_(tables_bytes), chain_(chain != nullptr ? *chain : make_chain(config_)), trains_(std::move(trains)) {
    check_shape(config_, shape_);
    if (trains_.empty())
        for (int64_t i = 0; i < chain_.items(); ++i) trains_.emplace_back(chain_.of(i).params.size(), 1);
    if (config_.memory_budget != 0)
        sizes_of("the bytes and times of plans for a budget", [&] { plan_for_budget(cancellation); });
    else policies_ = policies_of(config_, chain_);
}

BudgetPlanner Plan::planner(Cancellation *cancellation) const {
    return BudgetPlanner(plan_input(config_, shape_, chain_, {}, trains_, traits_), table_,
                         config_.cpu_offloading_num_layers, cancellation);
}

void Plan::plan_for_budget(Cancellation *cancellation) {
    proof_.budget_bytes = config_.memory_budget;
    proof_.includes_parameters = config_.memory_budget_includes_parameters;
    const int64_t outside =
        proof_.includes_parameters ? add(add(parameter_bytes(), gradient_bytes()), tables_bytes_) : 0;
    BudgetAnswer a = planner(cancellation).solve(std::max<int64_t>(0, config_.memory_budget - outside));
    proof_.minimum_budget_bytes = add(a.minimum_bytes, outside);
    if (!a.feasible || proof_.budget_bytes < outside)
        fail(MDLM_ERROR_BUDGET, "memory_budget = %lld: the smallest in which any plan fits is %lld%s",
             (long long)proof_.budget_bytes, (long long)proof_.minimum_budget_bytes,
             proof_.includes_parameters ? ", parameters and gradients included" : "");
    proof_.gap_ns = a.gap_ns, proof_.optimal = a.optimal;
    policies_ = std::move(a.policies);
}

BudgetFrontier Plan::frontier(Cancellation *cancellation) const {
    return sizes_of("the bytes and times of plans for a budget", [&] { return planner(cancellation).frontier(); });
}

void Plan::change(Policies policies) {
    policies_ = std::move(policies);
    laid_out_.reset();
    times_.clear();
    proof_ = {};
}

void Plan::set_policies(Policies policies) {
    check(policies, chain_, config_.tensor_model_parallel_size);
    change(std::move(policies));
}

void Plan::check_layer(int64_t layer) const {
    if (layer < 0 || layer >= chain_.items())
        fail(MDLM_ERROR_ARGUMENT, "layer = %lld: expected 0 .. %lld", (long long)layer, (long long)chain_.items() - 1);
}

BufferId Plan::find(int64_t layer, const char *tensor) const {
    const Program &p = chain_.of(layer);
    const BufferId b = p.find(tensor);
    return b == p.output || (b != no_buffer && p.is_side(b)) ? no_buffer : b;
}

void Plan::set(int64_t layer, const char *tensor, Storage storage) {
    Policies changed = policies_;
    bool found = false;
    if (layer != -1) check_layer(layer);
    for (int64_t i = layer == -1 ? 0 : layer; i < (layer == -1 ? chain_.items() : layer + 1); ++i) {
        const BufferId b = find(i, tensor);
        if (b == no_buffer) continue;
        found = true;
        // Over all layers, an input inside a unit is what its unit makes it.
        if (layer == -1 && b == chain_.of(i).input && changed.unit_of(i).first != i) continue;
        set_storage(changed, chain_, config_.tensor_model_parallel_size, i, b, storage);
    }
    if (!found)
        fail(MDLM_ERROR_NOT_FOUND, "tensor \"%.100s\": layer %lld has none of that name", tensor, (long long)layer);
    change(std::move(changed));
}

Storage Plan::get(int64_t layer, const char *tensor) const {
    check_layer(layer);
    const BufferId b = find(layer, tensor);
    if (b == no_buffer)
        fail(MDLM_ERROR_NOT_FOUND, "tensor \"%.100s\": layer %lld has none of that name", tensor, (long long)layer);
    return policies_.items[layer][b];
}

void Plan::set_unit(int64_t first, int64_t count) {
    Policies changed = policies_;
    mdlm::set_unit(changed, chain_, first, count);
    change(std::move(changed));
}

const char *Plan::tensor(int64_t layer, int64_t index) const {
    check_layer(layer);
    const Program &p = chain_.of(layer);
    const std::vector<BufferId> ids = tensors_of(p);
    return index < 0 || index >= static_cast<int64_t>(ids.size()) ? nullptr : p.buffers[ids[index]].name.c_str();
}

const BlockPlan &Plan::block_plan() const {
    if (laid_out_ == nullptr)
        laid_out_ = make_block_plan(plan_input(config_, shape_, chain_, policies_, trains_, traits_));
    return *laid_out_;
}

const std::vector<ItemTimes> &Plan::times() const {
    if (!times_.empty()) return times_;
    const BlockPlan &plan = block_plan();
    std::vector<ItemTimes> times = sizes_of("the times of a step", [&] { return times_of(plan, table_); });
    sizes_of("the times of a step", [&] { return sum(times); });
    return times_ = std::move(times);
}

int64_t Plan::parameter_bytes() const {
    int64_t sum = 0;
    for (int64_t i = 0; i < chain_.items(); ++i)
        for (const Param &p : chain_.of(i).params) {
            const int64_t t = config_.tensor_model_parallel_size;
            sum = add(sum, rounded(mul(mul(p.local(0, t), p.local(1, t)), size_of(config_.params_dtype))));
        }
    for (const Item &item : chain_.list)
        for (const State &s : item.program->states) sum = add(sum, s.bytes());
    return sum;
}

int64_t Plan::gradient_bytes() const {
    int64_t sum = 0;
    for (int64_t i = 0; i < chain_.items(); ++i)
        for (size_t j = 0; j < chain_.of(i).params.size(); ++j) {
            const Param &p = chain_.of(i).params[j];
            const int64_t t = config_.tensor_model_parallel_size;
            if (trains_[i][j])
                sum = add(sum, rounded(mul(mul(p.local(0, t), p.local(1, t)), size_of(config_.grad_dtype))));
        }
    return sum;
}

uint64_t Plan::digest() const {
    char text[256];
    std::snprintf(text, sizeof text, "seq_length=%lld\nmicro_batch_size=%lld\nmax_tokens=%lld\nt=%lld\n",
                  (long long)shape_.seq_length, (long long)shape_.micro_batch_size, (long long)most_tokens(shape_),
                  (long long)config_.tensor_model_parallel_size);
    return digest_of(text, config_.digest);
}

}  // namespace mdlm

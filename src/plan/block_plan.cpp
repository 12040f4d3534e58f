// SPDX-License-Identifier: Apache-2.0
#include "plan/block_plan.hpp"

#include <algorithm>
#include <tuple>

#include "base/sizes.hpp"
#include "plan/unit_plan.hpp"

namespace mdlm {
namespace {

// What an item makes is what the next one takes.
void check_boundaries(const BlockPlanInput &in) {
    for (int64_t i = 1; i < in.chain.items(); ++i) {
        const Program &from = in.chain.of(i - 1), &to = in.chain.of(i);
        const Buffer &made = from.buffers[from.output], &taken = to.buffers[to.input];
        if (!made.same_form(taken))
            fail(MDLM_ERROR_INTERNAL,
                 "layer %lld makes an output of %lld bytes of %s: expected %lld of %s, the input of the next",
                 (long long)i - 1, (long long)made.bytes(in.bound), name_of(made.dtype),
                 (long long)taken.bytes(in.bound), name_of(taken.dtype));
    }
}

}  // namespace

int64_t call_state_bytes(int64_t seq) {
    return rounded(add(int64_t{sizeof(DrawState)}, mul(2 * int64_t{sizeof(int32_t)}, seq)));
}

int64_t input_bytes(const BlockPlanInput &in, int64_t item) {
    const Program &program = in.chain.of(item);
    return rounded(program.buffers[program.input].bytes(in.bound));
}

int64_t share_bytes(const BlockPlanInput &in, int64_t item) {
    const Program &program = in.chain.of(item);
    const Buffer &x = program.buffers[program.input];
    return rounded(mul(ceil_div(x.bytes(in.bound) / size_of(x.dtype), in.group_size), size_of(x.dtype)));
}

std::vector<std::shared_ptr<const Differentiated>> differentiate_items(const BlockPlanInput &in) {
    std::vector<std::shared_ptr<const Differentiated>> items;
    std::map<std::tuple<const Program *, std::vector<char>, bool>, std::shared_ptr<const Differentiated>> seen;
    bool active = in.input_requires_grad;
    for (int64_t i = 0; i < in.chain.items(); ++i) {
        const auto &trains = in.trains[i];
        auto &d = seen[{in.chain[i].program.get(), trains, active}];
        if (d == nullptr) d = differentiate(in.chain[i].program, trains, active);
        items.push_back(d);
        active = active || std::count(trains.begin(), trains.end(), 1) > 0;
    }
    return items;
}

BlockPlanInput plan_input(const Config &config, const mdlm_shape &shape, Chain chain, Policies policies,
                          std::vector<std::vector<char>> trains, const Traits &traits) {
    BlockPlanInput in;
    in.chain = std::move(chain), in.policies = std::move(policies), in.trains = std::move(trains), in.traits = traits;
    in.bound = {most_tokens(shape), shape.seq_length};
    in.in_flight = shape.in_flight, in.group_size = config.tensor_model_parallel_size;
    in.evaluate_in_flight = shape.evaluate_in_flight != 0, in.input_requires_grad = shape.input_requires_grad != 0;
    in.borrow_input = shape.input_storage == MDLM_INPUT_BORROW, in.share_scratch = shape.share_scratch != 0;
    if (traits.asynchronous) in.call_state_bytes = call_state_bytes(shape.max_documents > 0 ? shape.seq_length : 0);
    return in;
}

const Schedule *BlockPlan::schedule(int64_t item, const LayerPolicy &policy, bool save, bool in_unit) {
    const auto &buffers = input.chain.of(item).buffers;
    // Else it makes no difference.
    in_unit = in_unit && std::any_of(buffers.begin(), buffers.end(), [](const Buffer &b) { return b.always_kept; });
    auto &s = schedules[{layers[item].get(), save ? policy : LayerPolicy{}, save, in_unit}];
    if (s == nullptr)
        s = std::make_unique<Schedule>(make_schedule(layers[item], policy, save, input.bound, input.traits, in_unit));
    return s.get();
}

const Layout *BlockPlan::layout(const Schedule *schedule, const LayoutKey &key) {
    auto &l = layouts[{schedule, key}];
    if (l == nullptr) l = std::make_unique<Layout>(make_layout(*schedule, key));
    return l.get();
}

std::unique_ptr<BlockPlan> make_block_plan(BlockPlanInput input) {
    auto plan = std::make_unique<BlockPlan>();
    plan->input = std::move(input);
    sizes_of("the bytes and FLOPs of a step", [&] {
        check_boundaries(plan->input);
        plan->layers = differentiate_items(plan->input);
        plan->wants_dx = plan->input.input_requires_grad;
        const UnitPlans units = plan_units(*plan);
        lay_out_entries(*plan, units);
        add_up(*plan, units.units);
    });
    return plan;
}

}  // namespace mdlm

// SPDX-License-Identifier: Apache-2.0
#include "plan/block_plan.hpp"

#include <algorithm>

#include "base/sizes.hpp"
#include "plan/unit_plan.hpp"

namespace mdlm {
namespace {

// What a layer makes is what the next one takes.
void check_boundaries(const BlockPlanInput &in) {
    for (int64_t i = 1; i < in.programs.items(); ++i) {
        const Program &from = in.programs.of(i - 1), &to = in.programs.of(i);
        const int64_t made = from.buffers[from.output].bytes(in.bound), taken = to.buffers[to.input].bytes(in.bound);
        if (made != taken)
            fail(MDLM_ERROR_INTERNAL, "layer %lld makes an output of %lld bytes: expected %lld, the input of the next",
                 (long long)i - 1, (long long)made, (long long)taken);
        if (&from == &to && i > 1) i = in.programs.num_layers - 1;  // the same two programs again
    }
}

}  // namespace

int64_t call_state_bytes(int64_t seq) {
    return rounded(add(int64_t{sizeof(DrawState)}, mul(2 * int64_t{sizeof(int32_t)}, seq)));
}

int64_t input_bytes(const BlockPlanInput &in, int64_t item) {
    const Program &program = in.programs.of(item);
    return rounded(program.buffers[program.input].bytes(in.bound));
}

int64_t share_bytes(const BlockPlanInput &in, int64_t item) {
    const Program &program = in.programs.of(item);
    const Buffer &x = program.buffers[program.input];
    return rounded(mul(ceil_div(x.bytes(in.bound) / size_of(x.dtype), in.group_size), size_of(x.dtype)));
}

std::vector<std::shared_ptr<const Differentiated>> differentiate_items(const BlockPlanInput &in) {
    std::vector<std::shared_ptr<const Differentiated>> items;
    std::map<std::pair<std::vector<char>, bool>, std::shared_ptr<const Differentiated>> seen;
    bool active = in.input_requires_grad;
    for (int64_t i = 0; i < in.programs.items(); ++i) {
        const auto &trains = in.trains[i];
        const bool is_layer = i < in.programs.num_layers;
        auto &d = seen[{trains, active}];
        if (!is_layer || d == nullptr) {
            auto made = differentiate(is_layer ? in.programs.layer : in.programs.final_norm, trains, active);
            if (is_layer) d = made;
            items.push_back(std::move(made));
        } else {
            items.push_back(d);
        }
        active = active || std::count(trains.begin(), trains.end(), 1) > 0;
    }
    return items;
}

BlockPlanInput plan_input(const Config &config, const mdlm_shape &shape, Programs programs, Policies policies,
                          std::vector<std::vector<char>> trains, const Traits &traits) {
    BlockPlanInput in;
    in.programs = std::move(programs), in.policies = std::move(policies), in.trains = std::move(trains),
    in.traits = traits;
    in.bound = {most_tokens(shape), shape.seq_length};
    in.in_flight = shape.in_flight, in.group_size = config.tensor_model_parallel_size;
    in.evaluate_in_flight = shape.evaluate_in_flight != 0, in.input_requires_grad = shape.input_requires_grad != 0;
    in.borrow_input = shape.input_storage == MDLM_INPUT_BORROW, in.share_scratch = shape.share_scratch != 0;
    if (traits.asynchronous) in.call_state_bytes = call_state_bytes(shape.max_documents > 0 ? shape.seq_length : 0);
    return in;
}

const Schedule *BlockPlan::schedule(int64_t item, const LayerPolicy &policy, bool save) {
    auto &s = schedules[{layers[item].get(), save ? policy : LayerPolicy{}, save}];
    if (s == nullptr)
        s = std::make_unique<Schedule>(make_schedule(layers[item], policy, save, input.bound, input.traits));
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

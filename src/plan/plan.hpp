// SPDX-License-Identifier: Apache-2.0
// A plan to look at and to change: policies for a config, a shape and a machine, with the block plan and the times that
// follow from them.
#pragma once
#include <memory>
#include <string>
#include <string_view>

#include "plan/block_plan.hpp"
#include "plan/budget.hpp"
#include "plan/times.hpp"

namespace mdlm {

class Plan {
public:
    // By the config's settings, or by the planner for its memory_budget (BUDGET names the smallest that fits). trains
    // empty: everything is trained. tables_bytes are counted with the parameters. chain: what runs, where it is not the
    // config's.
    Plan(const mdlm_config &config, const mdlm_shape &shape, const Traits &traits,
         std::vector<std::vector<char>> trains, DeviceTable table = device_table("cpu"), int64_t tables_bytes = 0,
         Cancellation *cancellation = nullptr, const Chain *chain = nullptr);

    const Config &config() const { return config_; }
    const mdlm_shape &shape() const { return shape_; }
    const Chain &chain() const { return chain_; }
    const Policies &policies() const { return policies_; }
    void set_policies(Policies policies);
    void set(int64_t layer, const char *tensor, Storage storage);  // layer -1: all that have the tensor
    Storage get(int64_t layer, const char *tensor) const;
    void set_unit(int64_t first, int64_t count);
    const char *tensor(int64_t layer, int64_t index) const;  // nullptr past the end
    // Laid out when first asked for after a change.
    const BlockPlan &block_plan() const;
    const std::vector<ItemTimes> &times() const;  // by item; worked out with the block plan
    const DeviceTable &table() const { return table_; }
    // What is known of a plan that was made for a budget, until it is changed; bytes are counted as the config says.
    struct Proof {
        int64_t budget_bytes = 0, minimum_budget_bytes = 0, gap_ns = 0;
        bool includes_parameters = false, optimal = false;
    };
    const Proof &proof() const { return proof_; }
    // What any budget buys, whatever this plan's.
    BudgetFrontier frontier(Cancellation *cancellation = nullptr) const;
    int64_t parameter_bytes() const;
    int64_t gradient_bytes() const;
    uint64_t digest() const;  // of config, shape and group size: what a plan's text belongs to

private:
    void check_layer(int64_t layer) const;
    BufferId find(int64_t layer, const char *tensor) const;
    void change(Policies policies);
    BudgetPlanner planner(Cancellation *cancellation) const;
    void plan_for_budget(Cancellation *cancellation);

    Config config_;
    mdlm_shape shape_;
    DeviceTable table_;
    Traits traits_;
    int64_t tables_bytes_;
    Chain chain_;
    std::vector<std::vector<char>> trains_;
    Policies policies_;
    Proof proof_;
    mutable std::unique_ptr<BlockPlan> laid_out_;
    mutable std::vector<ItemTimes> times_;
};

std::string print(const Plan &plan);
std::string to_json(const Plan &plan);
// Reads policies into a plan made for the same config and shape. Throws FORMAT, naming the place, and leaves the plan
// as it was.
void from_json(Plan &plan, std::string_view text);

}  // namespace mdlm

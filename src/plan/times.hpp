// SPDX-License-Identifier: Apache-2.0
// Predicted times of a block plan by a device table, item by item.
#pragma once
#include <vector>

#include "plan/block_plan.hpp"
#include "plan/device_table.hpp"

namespace mdlm {

struct ItemTimes {
    int64_t forward_ns = 0, backward_ns = 0;  // without what is next
    int64_t extra_ns = 0;                     // replay, gathering of shards, copies that nothing hides
};

std::vector<ItemTimes> times_of(const BlockPlan &plan, const DeviceTable &table);
ItemTimes sum(const std::vector<ItemTimes> &items);

// Of the ops of one phase of a schedule; replayed ones apart.
struct PhaseTimes {
    int64_t own_ns = 0, replayed_ns = 0;
};
PhaseTimes times_of(const Schedule &schedule, const std::vector<ScheduledOp> &ops, Extent extent,
                    const DeviceTable &table);
DType dtype_of(const Program &program);
// What keeping a unit's input as a share costs: cutting it out in forward, gathering it in backward.
int64_t shard_ns(int64_t share_bytes, int64_t group_size, const DeviceTable &table);

}  // namespace mdlm

// SPDX-License-Identifier: Apache-2.0
// The planner's plans against full/block in the same bytes: what either adds to a step, predicted and measured within
// the steps.
#pragma once
#include <vector>

#include "figures.hpp"

namespace mdlm::tools::bench {

struct BudgetRow {
    size_t setting;          // of the measurement
    double predicted;        // extra over forward and backward, by the device table
    Spread extra;            // the same, measured within each step
    bool has_rival;          // full/block at the same budget; for the planner only
    double predicted_ratio;  // extra over the rival's
    Spread ratio;            // measured, within a repeat
};
// One for each setting of a budget, in order.
std::vector<BudgetRow> budget_rows(const Measurement &measurement);

}  // namespace mdlm::tools::bench

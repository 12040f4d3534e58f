// SPDX-License-Identifier: Apache-2.0
// Which chart shows a report.
#pragma once
#include "chart.hpp"
#include "report.hpp"

namespace mdlm::tools::bench {

// With --curve time per token against the size, measured and from FLOPs; with --sweep time against saved bytes.
Chart plot_of(const Report &report);

}  // namespace mdlm::tools::bench

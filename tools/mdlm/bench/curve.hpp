// SPDX-License-Identifier: Apache-2.0
// Time against a size: does it grow as the FLOPs do?
#pragma once
#include <vector>

#include "figures.hpp"

namespace mdlm::tools::bench {

struct CurvePoint {
    int64_t at = 0;              // sequence length or micro-batch size
    double us_per_token = 0;     // forward and backward, median
    double predicted_us = 0;     // the same from FLOPs, at the median rate of all points
    double flops_per_token = 0;  // linears and attention
    double step = 0;  // time per FLOP over the point's before, less 1: median of ratios within a repeat. Not a number
                      // at the first
};

std::vector<CurvePoint> curve_of(const Options &options, const std::vector<Measured> &settings);
// The largest step in either direction; 0 of one point.
double largest_step(const std::vector<CurvePoint> &points);

}  // namespace mdlm::tools::bench

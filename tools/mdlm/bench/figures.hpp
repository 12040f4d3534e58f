// SPDX-License-Identifier: Apache-2.0
// From times of ops and steps to the figures that a table shows.
#pragma once
#include <string>
#include <vector>

#include "measure.hpp"

namespace mdlm::tools::bench {

// The middle; of an even number the mean of both. Not a number of none.
double median(std::vector<double> values);

// Median and quartiles, between two values where they fall between them. Not numbers of none.
struct Spread {
    double middle = 0, low = 0, high = 0;
};
Spread spread(std::vector<double> values);

// What a plan adds to a step, over all else in it, by the times of its ops: replayed ops, inputs that are gathered or
// sharded, and tensors that go to the host and come back. No other step is compared with, so a clock that differs
// between steps does not matter.
double extra_share(const Step &step);
Spread spread_of_extra(const Measured &measured);
// The same as the device table has it.
double predicted_extra(const mdlm_plan_cost &cost);

// Pairs of tokens that attention looks at, as a share of all pairs of a sequence.
double visible_share(const mdlm_config &config, int64_t seq_length);

// FLOPs of one step, attention's scaled by the visible share, and bytes as the ops count them.
struct Work {
    double flops = 0;         // of all ops
    double matmul_flops = 0;  // of linears and attention
    double bytes = 0;
};
Work work_of(const OpTotals &ops, double visible, mdlm_phase phase);

// The best rate that a matmul of the measurement has reached on rank 0, in any call: of settings for one rank, or of
// the others.
struct Peak {
    double flops_per_s = 0;  // 0: nothing was timed
    OpKey op;
    std::string setting;
};
Peak peak_of(const std::vector<Measured> &settings, bool one_rank = false);

// An op in which ranks exchange data, or wait for each other to do so.
bool is_collective(const std::string &op);

// Medians over the repeats. What compares with another setting is the median of ratios within a repeat; not a number
// without one. Rates are of all ranks together; FLOPs, bytes and times of ops are rank 0's.
struct Figures {
    double forward_ms = 0, backward_ms = 0, total_ms = 0;
    double overhead = 0;  // time over the baseline's, less 1
    Spread overhead_spread;
    Spread extra;  // of a step, within it
    // The replayed ops at the times that the same ops took in the forward, over the baseline's time.
    double predicted_overhead = 0;
    double against_one_rank = 0;  // time over that of one rank with the threads of all, less 1
    Spread against_spread;
    double collectives_ms = 0, collectives_share = 0;  // of a step, in collectives, waiting for others included
    double tokens_per_s = 0;
    double visible = 1;
    double model_flops = 0;  // linears and attention, forward and backward without the replay
    double model_flops_per_s = 0, of_peak = 0;
    double hardware_flops_per_s = 0;                            // the replay's linears and attention counted too
    double replayed_flops = 0, replayed_bytes = 0;              // all ops
    double replayed_flops_share = 0, replayed_bytes_share = 0;  // over forward and backward without the replay
};
Figures figures_of(const Measured &measured, const Measured *baseline, const Peak &peak,
                   const Measured *one_rank = nullptr);

// What others are compared with: the first setting that replays nothing; nullptr if none is such. Settings for one rank
// have their own.
const Measured *baseline_of(const std::vector<Measured> &settings, bool one_rank = false);

}  // namespace mdlm::tools::bench

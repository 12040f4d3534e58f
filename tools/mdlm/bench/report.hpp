// SPDX-License-Identifier: Apache-2.0
// What mdlm bench prints: tables to read, or JSON.
#pragma once
#include <string>

#include "budgets.hpp"
#include "curve.hpp"
#include "profile.hpp"

namespace mdlm::tools::bench {

// Everything that was found out, worked out once for all ways of showing it.
struct Report {
    const Options &options;
    const Measurement &measurement;
    Peak peak, one_rank_peak;        // the second only with --against-one-rank
    std::vector<Figures> figures;    // by setting
    std::vector<Profile> profiles;   // by setting; empty without --profile
    std::vector<CurvePoint> curve;   // empty without --curve
    std::vector<BudgetRow> budgets;  // empty without --budgets
};
Report report_of(const Options &options, const Measurement &measurement);

std::string table_of(const Report &report);
std::string json_of(const Report &report);

// "MiB" and the like in tables; "512.0 MiB".
std::string bytes_text(double bytes);
// "linear_wgrad of linear_fc1, m 2048 n 6144 k 1024".
std::string op_text(const OpKey &op);
// "4 layers, h 1024, 16 heads of 64, ffn 3072, s 1024, b 2, f32, no_mask".
std::string shape_text(const Report &report);

}  // namespace mdlm::tools::bench

// SPDX-License-Identifier: Apache-2.0
// A timeline in the Trace Event Format (a JSON array of complete events), which chrome://tracing and Perfetto open.
#pragma once
#include <string>

#include "measure.hpp"

namespace mdlm::tools::bench {

// The last step of every setting: settings as processes, and in each the spans step > forward, backward > layer > op.
std::string trace_of(const Measurement &measurement);

}  // namespace mdlm::tools::bench

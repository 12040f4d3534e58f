// SPDX-License-Identifier: Apache-2.0
// A chart as SVG: lines or points over two axes. Knows nothing of what is shown.
#pragma once
#include <string>
#include <vector>

namespace mdlm::tools::bench {

struct ChartPoint {
    double x = 0, y = 0;
    std::string label;  // beside the point; empty: none
};

struct Series {
    std::string name;  // in the legend
    const char *colour = "#1f5fa8";
    bool line = true, dashed = false, dots = true;
    std::vector<ChartPoint> points;
};

struct Chart {
    std::string title, subtitle, x_label, y_label;
    bool log_x = false;  // to the base 2, with a tick at each point's x; else from 0 with round ticks
    std::vector<Series> series;
};

// Well-formed XML whatever the texts hold. Points must be finite, and positive along a logarithmic axis.
std::string svg_of(const Chart &chart);

}  // namespace mdlm::tools::bench

// SPDX-License-Identifier: Apache-2.0
#include "chart.hpp"

#include <algorithm>
#include <cmath>
#include <set>

#include "../../text.hpp"

namespace mdlm::tools::bench {
namespace {

constexpr double width = 900, height = 560, left = 80, right = 30, top = 70, bottom = 100;
constexpr double text_size = 12, letter = 0.6 * text_size;  // about as wide as a letter is

// Text of a chart is ASCII: control characters have no place in XML, and other bytes might not be UTF-8.
std::string escaped(const std::string &text) {
    std::string out;
    for (const char c : one_line(text)) {
        if (c == '&') out += "&amp;";
        else if (c == '<') out += "&lt;";
        else if (c == '>') out += "&gt;";
        else if (c == '"') out += "&quot;";
        else out += static_cast<unsigned char>(c) < 0x80 ? c : '?';
    }
    return out;
}

// A step of 1, 2 or 5 times a power of ten, so that about count ticks reach top.
double tick_step(double most, int count) {
    const double rough = most / count, power = std::pow(10, std::floor(std::log10(rough)));
    for (const double factor : {1.0, 2.0, 5.0})
        if (factor * power >= rough) return factor * power;
    return 10 * power;
}

struct Box {
    double x0, y0, x1, y1;
    bool meets(const Box &o) const { return x0 < o.x1 && o.x0 < x1 && y0 < o.y1 && o.y0 < y1; }
};

class Drawing {
public:
    explicit Drawing(const Chart &chart) : c_(chart) {
        double x_least = HUGE_VAL, x_most = 0, y_most = 0;
        for (const Series &s : c_.series)
            for (const ChartPoint &p : s.points) {
                x_least = std::min(x_least, p.x), x_most = std::max(x_most, p.x), y_most = std::max(y_most, p.y);
                at_.insert(p.x);
            }
        y_step_ = tick_step(y_most > 0 ? y_most : 1, 6);
        y_most_ = y_step_ * std::ceil((y_most > 0 ? 1.05 * y_most : 1) / y_step_);
        x_step_ = tick_step(x_most > 0 ? x_most : 1, 8);
        x_most_ = c_.log_x ? x_most : x_step_ * std::ceil((x_most > 0 ? 1.05 * x_most : 1) / x_step_);
        x_least_ = c_.log_x ? x_least : 0;
    }

    std::string text() {
        out_ =
            textf("<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"%.0f\" height=\"%.0f\" viewBox=\"0 0 %.0f %.0f\" "
                  "font-family=\"Helvetica, Arial, sans-serif\" font-size=\"%.0f\">\n"
                  "<rect width=\"100%%\" height=\"100%%\" fill=\"white\"/>\n",
                  width, height, width, height, text_size);
        write(left, 28, c_.title, "start", "font-size=\"17\" font-weight=\"bold\"");
        write(left, 48, c_.subtitle, "start", "fill=\"#555\"");
        axes();
        for (const Series &s : c_.series) series(s);
        labels();
        legend();
        return out_ + "</svg>\n";
    }

private:
    double x(double value) const {
        const double low = c_.log_x ? std::log2(x_least_) : 0, high = c_.log_x ? std::log2(x_most_) : x_most_;
        const double place = c_.log_x ? std::log2(value) : value;
        return left + (width - left - right) * (high > low ? (place - low) / (high - low) : 0.5);
    }
    double y(double value) const { return height - bottom - (height - top - bottom) * value / y_most_; }

    void write(double at_x, double at_y, const std::string &text, const char *anchor, const char *more = "") {
        out_ += textf("<text x=\"%.1f\" y=\"%.1f\" text-anchor=\"%s\" %s>%s</text>\n", at_x, at_y, anchor, more,
                      escaped(text).c_str());
    }
    void rule(double x0, double y0, double x1, double y1, const char *colour, const char *more = "") {
        out_ += textf("<line x1=\"%.1f\" y1=\"%.1f\" x2=\"%.1f\" y2=\"%.1f\" stroke=\"%s\" %s/>\n", x0, y0, x1, y1,
                      colour, more);
    }

    void axes() {
        const double base = height - bottom;
        for (int i = 0; i * y_step_ <= y_most_ * (1 + 1e-9); ++i) {
            rule(left, y(i * y_step_), width - right, y(i * y_step_), i == 0 ? "#333" : "#ddd");
            write(left - 8, y(i * y_step_) + 4, textf("%g", i * y_step_), "end");
        }
        const auto tick = [&](double value) {
            rule(x(value), base, x(value), base + 5, "#333");
            write(x(value), base + 20, textf("%g", value), "middle");
        };
        if (c_.log_x) std::for_each(at_.begin(), at_.end(), tick);
        else
            for (int i = 0; i * x_step_ <= x_most_ * (1 + 1e-9); ++i) tick(i * x_step_);
        rule(left, top, left, base, "#333");
        write((left + width - right) / 2, base + 42, c_.x_label, "middle");
        const std::string turned = textf("transform=\"rotate(-90 22 %.1f)\"", (top + base) / 2);
        write(22, (top + base) / 2, c_.y_label, "middle", turned.c_str());
    }

    void series(const Series &s) {
        if (s.line) {
            std::string points;
            for (const ChartPoint &p : s.points)
                points += textf("%s%.1f,%.1f", points.empty() ? "" : " ", x(p.x), y(p.y));
            out_ += textf("<polyline fill=\"none\" stroke=\"%s\" stroke-width=\"2\" %spoints=\"%s\"/>\n", s.colour,
                          s.dashed ? "stroke-dasharray=\"6 4\" " : "", points.c_str());
        }
        for (const ChartPoint &p : s.points) {
            if (s.dots)
                out_ += textf("<circle cx=\"%.1f\" cy=\"%.1f\" r=\"4\" fill=\"%s\"/>\n", x(p.x), y(p.y), s.colour);
            taken_.push_back({x(p.x) - 5, y(p.y) - 5, x(p.x) + 5, y(p.y) + 5});
        }
    }

    // Each label goes to the nearest place beside its point that nothing else has, with a thin line to it where that is
    // far.
    void labels() {
        for (const Series &s : c_.series)
            for (const ChartPoint &p : s.points)
                if (!p.label.empty()) label(x(p.x), y(p.y), p.label);
    }
    void label(double px, double py, const std::string &text) {
        const double w = letter * static_cast<double>(text.size());
        for (double away = 8; away < 200; away += 7)
            for (const auto &[dx, dy] : {std::pair{1.0, 0.0},
                                         {-1.0, 0.0},
                                         {0.7, -0.7},
                                         {0.7, 0.7},
                                         {-0.7, -0.7},
                                         {-0.7, 0.7},
                                         {0.0, -1.0},
                                         {0.0, 1.0}}) {
                const double cx = px + away * dx + (dx > 0 ? w / 2 : dx < 0 ? -w / 2 : 0), cy = py + away * dy;
                const Box box{cx - w / 2, cy - text_size / 2, cx + w / 2, cy + text_size / 2};
                if (box.x0 < left || box.x1 > width - 4 || box.y0 < top || box.y1 > height - bottom) continue;
                if (std::any_of(taken_.begin(), taken_.end(), [&](const Box &other) { return box.meets(other); }))
                    continue;
                taken_.push_back(box);
                if (away > 20)
                    rule(px, py, std::clamp(px, box.x0, box.x1), std::clamp(py, box.y0, box.y1), "#999",
                         "stroke-width=\"0.7\"");
                return write(cx, cy + 0.35 * text_size, text, "middle");
            }
    }

    void legend() {
        double at = left;
        for (const Series &s : c_.series) {
            const double base = height - 22;
            if (s.line)
                rule(at, base - 4, at + 28, base - 4, s.colour,
                     s.dashed ? "stroke-width=\"2\" stroke-dasharray=\"6 4\"" : "stroke-width=\"2\"");
            if (s.dots)
                out_ += textf("<circle cx=\"%.1f\" cy=\"%.1f\" r=\"4\" fill=\"%s\"/>\n", at + 14, base - 4, s.colour);
            write(at + 36, base, s.name, "start");
            at += 60 + letter * static_cast<double>(s.name.size());
        }
    }

    const Chart &c_;
    double x_least_ = 0, x_most_ = 1, y_most_ = 1, x_step_ = 1, y_step_ = 1;
    std::set<double> at_;
    std::vector<Box> taken_;
    std::string out_;
};

}  // namespace

std::string svg_of(const Chart &chart) { return Drawing(chart).text(); }

}  // namespace mdlm::tools::bench

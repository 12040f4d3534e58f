// SPDX-License-Identifier: Apache-2.0
#include "planner/bounds.hpp"

#include <algorithm>

namespace mdlm::planner {
namespace {

constexpr int scale_bits = 40;
constexpr int64_t most_price = int64_t{1} << 60;
constexpr __int128 no_way = static_cast<__int128>(1) << 125;

__int128 scaled(int64_t ns) { return static_cast<__int128>(ns) << scale_bits; }
__int128 priced(int64_t price, int64_t bytes) { return static_cast<__int128>(price) * bytes; }
// Rounded up: a bound on a whole number.
int64_t whole(__int128 v) {
    return static_cast<int64_t>((v + ((static_cast<__int128>(1) << scale_bits) - 1)) >> scale_bits);
}

}  // namespace

Bounds::Bounds(const Edges &edges, const std::vector<int64_t> &budgets, Cancellation *cancellation)
    : edges_(edges), cancellation_(cancellation), budget_(budgets.back()) {
    least_before_.assign(edges.size() + 1, infinite);
    least_before_[0] = 0;
    for (size_t i = 0; i < edges.size(); ++i)
        for (const Edge &e : edges[i])
            if (least_before_[i] < infinite) {
                int64_t &to = least_before_[i + static_cast<size_t>(e.arc.count)];
                to = std::min(to, least_before_[i] + e.arc.left);
            }
    std::vector<int64_t> prices = {0, most_price};
    for (int64_t budget : budgets) {
        // The price at which the shortest path begins to fit the budget is about the best one for the whole chain.
        const auto fits = [&](int64_t price) {
            int64_t bytes = 0;
            shortest_after(price, nullptr, &bytes);
            return bytes <= budget;
        };
        int64_t low = 0, high = 1;
        while (high < most_price && !fits(high)) low = high, high *= 16;
        while (high - low > 1 + low / 4096) {
            const int64_t middle = low + (high - low) / 2;
            (fits(middle) ? high : low) = middle;
        }
        prices.insert(prices.end(), {low, high});
        // Others suit parts of the chain with more or less than their share of the bytes.
        if (budgets.size() > 1) continue;
        for (double factor :
             {0.1, 0.4, 0.7, 0.85, 0.93, 0.97, 0.99, 0.997, 1.003, 1.01, 1.03, 1.07, 1.17, 1.4, 2.5, 10.0})
            prices.push_back(
                static_cast<int64_t>(std::min(static_cast<double>(high) * factor, static_cast<double>(most_price))));
    }
    std::sort(prices.begin(), prices.end());
    prices.erase(std::unique(prices.begin(), prices.end()), prices.end());
    for (int64_t price : prices) lines_.push_back(make_line(price));
}

Bounds::Wide Bounds::shortest_after(int64_t price, std::vector<Wide> *after, int64_t *bytes) const {
    std::vector<Wide> own;
    std::vector<Wide> &cost = after != nullptr ? *after : own;
    std::vector<int64_t> used(edges_.size() + 1, 0);
    cost.assign(edges_.size() + 1, no_way);
    cost[edges_.size()] = 0;
    for (size_t i = edges_.size(); i-- > 0;) {
        poll(cancellation_, searching);
        for (const Edge &e : edges_[i]) {
            const size_t to = i + static_cast<size_t>(e.arc.count);
            if (cost[to] == no_way) continue;
            const int64_t takes = to == edges_.size() ? e.tail : e.arc.left;
            const Wide c = scaled(e.low_ns) + priced(price, takes) + cost[to];
            if (c < cost[i]) cost[i] = c, used[i] = takes + used[to];
        }
    }
    if (bytes != nullptr) *bytes = used[0];
    return cost[0];
}

Bounds::Line Bounds::make_line(int64_t price) const {
    Line line;
    line.price = price;
    shortest_after(price, &line.after, nullptr);
    line.before.assign(edges_.size() + 1, no_way);
    line.before[0] = 0;
    for (size_t i = 0; i < edges_.size(); ++i) {
        poll(cancellation_, searching);
        for (const Edge &e : edges_[i]) {
            if (line.before[i] == no_way) break;
            Wide &to = line.before[i + static_cast<size_t>(e.arc.count)];
            to = std::min(to, line.before[i] + scaled(e.low_ns) + priced(price, e.arc.left));
        }
    }
    return line;
}

int64_t Bounds::all(int64_t budget) const {
    Wide most = 0;
    for (const Line &line : lines_) most = std::max(most, line.after[0] - priced(line.price, budget));
    return whole(most);
}

bool Bounds::may(int64_t layer, const Edge &e, int64_t most, int64_t budget) const {
    poll(cancellation_, searching);
    const auto from = static_cast<size_t>(layer), to = from + static_cast<size_t>(e.arc.count);
    for (const Line &line : lines_) {
        if (line.before[from] == no_way || line.after[to] == no_way) return false;
        const int64_t takes = to == edges_.size() ? e.tail : e.arc.left;
        const Wide low = line.before[from] + scaled(e.low_ns) + priced(line.price, takes) + line.after[to];
        if (low - priced(line.price, budget) > scaled(most)) return false;
    }
    return true;
}

void Bounds::priced_with(const std::vector<Priced> &items, std::vector<Wide> &out) const {
    out.assign(lines_.size(), no_way);
    for (size_t l = 0; l < lines_.size(); ++l)
        for (const Priced &item : items) {
            poll(cancellation_, searching);
            const auto from = static_cast<size_t>(item.layer), to = from + static_cast<size_t>(item.edge->arc.count);
            const Wide before = lines_[l].before[from], after = lines_[l].after[to];
            if (before == no_way || after == no_way) continue;
            const int64_t takes = to == edges_.size() ? item.edge->tail : item.edge->arc.left;
            out[l] = std::min(out[l], before + scaled(item.edge->low_ns) + priced(lines_[l].price, takes) + after);
        }
}

int64_t Bounds::at_least(const std::vector<Wide> &priced_ns, int64_t budget) const {
    Wide most = 0;
    for (size_t l = 0; l < lines_.size(); ++l) most = std::max(most, priced_ns[l] - priced(lines_[l].price, budget));
    return most >= scaled(infinite) ? infinite : whole(most);
}

void Bounds::through(int64_t layer, const Steps &steps, std::vector<int64_t> &out) const {
    const auto i = static_cast<size_t>(layer);
    out.resize(steps.size());
    // The fewer bytes are left to the layers before, the higher the price that bounds them best; bounds by price have
    // one peak.
    size_t line = 0;
    const auto bound = [&](size_t l, int64_t bytes) {
        return lines_[l].before[i] - priced(lines_[l].price, budget_ - bytes);
    };
    for (size_t s = 0; s < steps.size(); ++s) {
        poll(cancellation_, searching);
        Wide best = bound(line, steps[s].bytes);
        while (line + 1 < lines_.size()) {
            const Wide next = bound(line + 1, steps[s].bytes);
            if (next < best) break;
            best = next, ++line;
        }
        out[s] = steps[s].ns + whole(best);
    }
}

void Bounds::slack(int64_t layer, const Steps &steps, std::vector<int64_t> &out) const {
    const auto i = static_cast<size_t>(layer);
    out.resize(steps.size());
    // The more bytes a step takes, the lower the price at which it may be the cheapest.
    size_t line = lines_.size() - 1;
    const auto above = [&](size_t l, const Step &s) {
        return lines_[l].before[i] + priced(lines_[l].price, s.bytes) + scaled(s.ns) - lines_[l].after[0];
    };
    for (size_t s = 0; s < steps.size(); ++s) {
        poll(cancellation_, searching);
        Wide least = above(line, steps[s]);
        while (line > 0) {
            const Wide next = above(line - 1, steps[s]);
            if (next > least) break;
            least = next, --line;
        }
        out[s] = whole(std::min(least, scaled(infinite)));
    }
}

}  // namespace mdlm::planner

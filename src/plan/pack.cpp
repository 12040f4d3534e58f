// SPDX-License-Identifier: Apache-2.0
// Greedy placement in several orders, the best of them kept. By size it is the "greedy by size" of Pisarchyk and Lee
// (arXiv 2001.03288); each item goes into the gap that it fills best. Where all of them lose something, the items that
// end highest are placed first, again and again ("squeaky wheel" optimization, Joslin and Clements, 1999).
#include "plan/pack.hpp"

#include <algorithm>
#include <limits>
#include <numeric>

namespace mdlm {
namespace {

// Lowest-waste free gap of `item` among what is placed.
int64_t best_gap(const std::vector<PackItem> &items, const std::vector<int32_t> &by_offset, const PackItem &item,
                 int64_t split) {
    int64_t best = -1, best_waste = std::numeric_limits<int64_t>::max(), at = 0;
    const auto offer = [&](int64_t begin, int64_t end) {  // a free interval inside one segment
        if (end - begin < item.bytes || end - begin - item.bytes >= best_waste) return;
        best = begin, best_waste = end - begin - item.bytes;
    };
    const auto free_between = [&](int64_t begin, int64_t end) {
        if (begin < split) offer(begin, std::min(end, split));
        if (end > split) offer(std::max(begin, split), end);
    };
    for (int32_t i : by_offset) {
        const PackItem &other = items[i];
        if (!other.overlaps(item)) continue;
        if (other.offset > at) free_between(at, other.offset);
        at = std::max(at, other.offset + other.bytes);
    }
    if (best >= 0) return best;
    if (at + item.bytes <= split) return at;  // the rest of the frame
    return std::max(at, split);               // on top
}

int64_t place(std::vector<PackItem> &items, const std::vector<int32_t> &order, int64_t split) {
    std::vector<int32_t> by_offset;
    const auto insert = [&](int32_t i) {
        const auto where = std::upper_bound(by_offset.begin(), by_offset.end(), i, [&](int32_t a, int32_t b) {
            return items[a].offset != items[b].offset ? items[a].offset < items[b].offset : a < b;
        });
        by_offset.insert(where, i);
    };
    int64_t height = split;
    for (size_t i = 0; i < items.size(); ++i)
        if (items[i].offset >= 0) insert(static_cast<int32_t>(i));
    for (int32_t i : order) {
        items[i].offset = best_gap(items, by_offset, items[i], split);
        insert(i);
    }
    for (const PackItem &i : items) height = std::max(height, i.offset + i.bytes);
    return height;
}

}  // namespace

int64_t pack(std::vector<PackItem> &items, int64_t split) {
    std::vector<int32_t> loose;
    for (size_t i = 0; i < items.size(); ++i)
        if (items[i].offset < 0) loose.push_back(static_cast<int32_t>(i));
    const auto length = [&](int32_t i) { return items[i].death - items[i].birth + 1; };
    const auto by = [&](auto key) {
        std::vector<int32_t> order = loose;
        std::stable_sort(order.begin(), order.end(), [&](int32_t a, int32_t b) { return key(a) > key(b); });
        return order;
    };
    const auto order_of = [&](int which) {
        switch (which) {
        case 0: return by([&](int32_t i) { return items[i].bytes; });
        case 1: return by([&](int32_t i) { return items[i].bytes * length(i); });
        case 2: return by([&](int32_t i) { return length(i); });
        case 3: return by([&](int32_t i) { return -items[i].birth; });
        default: return by([&](int32_t i) { return items[i].death; });
        }
    };
    const int64_t floor = std::max(most_alive(items), split);  // no order gets below it
    std::vector<PackItem> best;
    int64_t lowest = std::numeric_limits<int64_t>::max();
    std::vector<int32_t> order;
    const auto attempt = [&](const std::vector<int32_t> &in) {
        std::vector<PackItem> placed = items;
        const int64_t height = place(placed, in, split);
        std::vector<int32_t> blamed = in;
        std::stable_partition(blamed.begin(), blamed.end(),
                              [&](int32_t i) { return placed[i].offset + placed[i].bytes == height; });
        if (height < lowest) lowest = height, best = std::move(placed), order = blamed;
        return blamed;
    };
    for (int which = 0; which < 5 && lowest > floor; ++which) attempt(order_of(which));
    for (int round = 0; round < 16 && lowest > floor && order.size() > 1; ++round)
        order = attempt(std::vector<int32_t>(order));
    items = std::move(best);
    return lowest;
}

int64_t most_alive(const std::vector<PackItem> &items) {
    int64_t most = 0;
    for (const PackItem &at : items) {  // some item's birth is a highest moment
        int64_t alive = 0;
        for (const PackItem &i : items)
            if (i.birth <= at.birth && at.birth <= i.death) alive += i.bytes;
        most = std::max(most, alive);
    }
    return most;
}

}  // namespace mdlm

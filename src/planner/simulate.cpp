// SPDX-License-Identifier: Apache-2.0
// Walks a plan by the rules on top of chain.hpp. The solver's answers are checked by it.
#include <algorithm>
#include <cinttypes>

#include "planner/chain.hpp"

namespace mdlm::planner {
namespace {

// A list of items that is being walked: the chain itself, or the inside of a unit.
struct Level {
    int64_t at, end;   // layers yet to come
    size_t items_end;  // in the plan
    int64_t stack;     // retained bytes below the next item
    int64_t grad;      // bytes of the gradient that waits while they run forward
    int64_t left;      // what the unit leaves in the list that holds it
};

class Walk {
public:
    Walk(const Chain &chain, const ChainPlan &plan) : chain_(chain), plan_(plan) {}

    PlanCost run() {
        levels_.push_back({0, chain_.size(), plan_.size(), 0, 0, 0});
        int64_t slab = chain_.loss_bytes;
        while (true) {
            Level &l = levels_.back();
            if (l.at == l.end) {
                if (next_ != l.items_end) bad("an item behind the last layer");
                if (levels_.size() == 1) break;
                const int64_t left = l.left;
                levels_.pop_back();
                levels_.back().stack += left;
                if (levels_.size() == 1) slab = std::max(slab, most_ - base_ - left);
                continue;
            }
            if (next_ == l.items_end) bad("an item");
            const PlanItem &item = plan_[next_];
            if (item.first != l.at || item.count < 1 || item.first + int64_t{item.count} > l.end)
                bad("the layer that is next, within its unit");
            const bool outer = levels_.size() == 1;
            if (outer) base_ = l.stack, most_ = 0;
            ++next_;
            if (item.count == 1) {
                const PolicyCost &p = single(item, l);
                if (outer) slab = std::max(slab, most_ - base_ - p.saved_bytes);
            } else {
                unit(item, l);  // a new level: l is gone
            }
        }
        const int64_t stack = levels_.back().stack;
        const int64_t peak =
            chain_.one_stack() ? std::max(peak_, stack + chain_.loss_bytes) : chain_.in_flight * stack + slab;
        return {chain_.fixed_bytes + peak, ns_};
    }

private:
    [[noreturn]] void bad(const char *expected) const {
        fail(MDLM_ERROR_ARGUMENT, "plan: item %zu: expected %s", next_, expected);
    }
    void need(int64_t bytes) { most_ = std::max(most_, bytes), peak_ = std::max(peak_, bytes); }

    const PolicyCost &single(const PlanItem &item, Level &l) {
        const LayerType &t = chain_.type(item.first);
        if (item.choice < 0 || static_cast<size_t>(item.choice) >= t.policies.size() || item.inside != 0)
            bad("a policy of the layer");
        const PolicyCost &p = t.policies[static_cast<size_t>(item.choice)];
        const uint32_t role = levels_.size() == 1 ? role_alone : l.at + 1 == l.end ? role_last : role_inside;
        if ((p.roles & role) == 0) bad("a policy that may stand there");
        need(l.stack + l.grad + p.forward_bytes);
        need(l.stack + p.backward_bytes);
        l.stack += p.saved_bytes;
        ns_ += p.extra_ns;
        ++l.at;
        if (levels_.size() > 1) ns_ += l.at == l.end ? p.rebuild_ns : t.forward_ns;
        return p;
    }

    void unit(const PlanItem &item, Level &l) {
        const LayerType &t = chain_.type(item.first);
        if (item.choice < 0 || static_cast<size_t>(item.choice) >= t.unit_inputs.size())
            bad("an input form of the unit's first layer");
        const size_t items_end = next_ + static_cast<size_t>(std::max(item.inside, 0));
        if (item.inside < 1 || items_end > l.items_end) bad("a unit with items inside");
        const auto depth = static_cast<int64_t>(levels_.size());
        if (depth > std::min(chain_.max_unit_depth, most_unit_layers))
            bad("units nested no deeper than max_unit_depth");
        if (item.count > (chain_.max_unit_layers == 0 ? most_unit_layers : chain_.max_unit_layers))
            bad("a unit of at most max_unit_layers");
        const UnitInput &u = t.unit_inputs[static_cast<size_t>(item.choice)];
        const int64_t apart = u.stays ? 0 : u.saved_bytes;
        const int64_t end = item.first + int64_t{item.count};
        const int64_t grad = chain_.type(end - 1).grad_boundary_bytes;
        ns_ += u.restore_ns;
        need(l.stack + l.grad + apart + t.unsaved_forward_bytes);
        for (int64_t k = item.first; k < end; ++k) {
            if (k > item.first) need(l.stack + l.grad + u.saved_bytes + chain_.type(k).unsaved_forward_bytes);
            if (depth > 1) ns_ += chain_.type(k).forward_ns;
        }
        need(l.stack + apart + chain_.bytes_before(item.first) + grad);
        l.at = end;
        levels_.push_back({item.first, end, items_end, l.stack, grad, u.saved_bytes});
    }

    const Chain &chain_;
    const ChainPlan &plan_;
    std::vector<Level> levels_;
    size_t next_ = 0;
    int64_t peak_ = 0, ns_ = 0;
    int64_t base_ = 0, most_ = 0;  // of the outermost item: what is retained before it, and its highest need
};

}  // namespace

PlanCost simulate(const Chain &chain, const ChainPlan &plan) {
    check(chain);
    return Walk(chain, plan).run();
}

}  // namespace mdlm::planner

// SPDX-License-Identifier: Apache-2.0
#include "machine.hpp"

#include <algorithm>
#include <stdexcept>

namespace planner_test {

using mdlm::planner::LayerType;
using mdlm::planner::UnitInput;

namespace {

struct Tape {
    std::vector<int64_t> retained;  // from the bottom
    int64_t top() const {
        int64_t sum = 0;
        for (int64_t bytes : retained) sum += bytes;
        return sum;
    }
    void pop(int64_t bytes) {
        if (retained.empty() || retained.back() != bytes) throw std::logic_error("popped what was not pushed");
        retained.pop_back();
    }
};

class Machine {
public:
    explicit Machine(const Chain &chain)
        : chain_(chain), tapes_(static_cast<size_t>(chain.in_flight)), high_(tapes_.size(), 0) {}

    void forward(size_t tape, const std::vector<Node> &plan) {
        at_ = tape, frame_ = 0;
        ns_ = 0;
        for (const Node &n : plan) {
            frame_ = left_by(n);
            pass(n, 0, true);
        }
        frame_ = 0;
        alive(chain_.loss_bytes);
    }
    void backward(size_t tape, const std::vector<Node> &plan) {
        at_ = tape;
        for (size_t i = plan.size(); i-- > 0;) {
            frame_ = left_by(plan[i]);
            reverse(plan[i], 1);
        }
        if (!tapes_[at_].retained.empty()) throw std::logic_error("a tape is not empty after its backward");
    }
    int64_t peak() const {
        if (chain_.in_flight == 1 && !chain_.slab_apart) return chain_.fixed_bytes + most_alive_;
        int64_t sum = chain_.fixed_bytes + slab_;
        for (int64_t bytes : high_) sum += bytes;
        return sum;
    }
    int64_t ns() const { return ns_; }

private:
    const LayerType &type(int64_t layer) const { return chain_.type(layer); }
    const UnitInput &form(const Node &n) const { return type(n.first).unit_inputs[static_cast<size_t>(n.choice)]; }
    int64_t left_by(const Node &n) const {
        return n.inner.empty() ? type(n.first).policies[static_cast<size_t>(n.choice)].saved_bytes
                               : form(n).saved_bytes;
    }

    // So many bytes are alive above what this tape retains now.
    void alive(int64_t bytes) {
        const int64_t above = tapes_[at_].top() + bytes;
        most_alive_ = std::max(most_alive_, above);
        // Several tapes: the item's own frame has room for frame_ of what is alive above the items before it; the slab
        // for the rest.
        slab_ = std::max(slab_, above - below_ - frame_);
    }
    void push(int64_t bytes, bool outer) {
        tapes_[at_].retained.push_back(bytes);
        if (outer) high_[at_] = std::max(high_[at_], tapes_[at_].top());
    }

    // Forward; what it retains is pushed. grad: the gradient that waits, in a replay.
    void pass(const Node &n, int64_t grad, bool outer) {
        if (outer) below_ = tapes_[at_].top();
        if (n.inner.empty()) {
            const auto &p = type(n.first).policies[static_cast<size_t>(n.choice)];
            alive(p.forward_bytes + grad);
            push(p.saved_bytes, outer);
        } else {
            const UnitInput &u = form(n);
            for (int64_t i = n.first; i <= n.last; ++i)
                alive(type(i).unsaved_forward_bytes + grad + (i > n.first || !u.stays ? u.saved_bytes : 0));
            push(u.saved_bytes, outer);
        }
        if (outer) below_ = tapes_[at_].top();
    }

    void reverse(const Node &n, int depth) {
        if (n.inner.empty()) {
            const auto &p = type(n.first).policies[static_cast<size_t>(n.choice)];
            tapes_[at_].pop(p.saved_bytes);
            if (depth == 1) below_ = tapes_[at_].top();
            alive(p.backward_bytes);
            ns_ += p.extra_ns;
            return;
        }
        const UnitInput &u = form(n);
        tapes_[at_].pop(u.saved_bytes);
        if (depth == 1) below_ = tapes_[at_].top();
        const int64_t grad = type(n.last).grad_boundary_bytes;
        alive((u.stays ? 0 : u.saved_bytes) + chain_.bytes_before(n.first) + grad);
        ns_ += u.restore_ns;
        for (const Node &m : n.inner) {
            pass(m, grad, false);
            for (int64_t i = m.first; i <= m.last; ++i) {
                const bool rebuilt = m.inner.empty() && i == n.last;
                ns_ += rebuilt ? type(i).policies[static_cast<size_t>(m.choice)].rebuild_ns : type(i).forward_ns;
            }
        }
        for (size_t i = n.inner.size(); i-- > 0;) reverse(n.inner[i], depth + 1);
    }

    const Chain &chain_;
    std::vector<Tape> tapes_;
    std::vector<int64_t> high_;      // most that each tape retained, inside of units not counted
    size_t at_ = 0;                  // the tape that runs
    int64_t below_ = 0, frame_ = 0;  // of the outermost item that runs: retained before it, and by it
    int64_t most_alive_ = 0, slab_ = 0, ns_ = 0;
};

using Plans = std::vector<std::vector<Node>>;

// Plans of layers [first, last], units nested at most `depth` deep; in_unit: they are the last ones of a unit.
Plans plans_of(const Chain &chain, int64_t first, int64_t last, int64_t depth, bool in_unit) {
    if (first > last) return {{}};
    Plans all;
    const auto join = [&](const Node &head, const Plans &rest) {
        for (const auto &tail : rest) {
            all.push_back({head});
            all.back().insert(all.back().end(), tail.begin(), tail.end());
        }
    };
    const LayerType &t = chain.type(first);
    const Plans after_one = plans_of(chain, first + 1, last, depth, in_unit);
    const uint32_t role = !in_unit        ? mdlm::planner::role_alone
                          : first == last ? mdlm::planner::role_last
                                          : mdlm::planner::role_inside;
    for (size_t p = 0; p < t.policies.size(); ++p)
        if ((t.policies[p].roles & role) != 0) join({first, first, static_cast<int64_t>(p), {}}, after_one);
    if (depth == 0 || t.unit_inputs.empty()) return all;
    const int64_t most = chain.max_unit_layers == 0 ? chain.size() : chain.max_unit_layers;
    for (int64_t end = first + 1; end <= last && end - first < most; ++end) {
        const Plans inside = plans_of(chain, first, end, depth - 1, true),
                    rest = plans_of(chain, end + 1, last, depth, in_unit);
        for (size_t f = 0; f < t.unit_inputs.size(); ++f)
            for (const auto &inner : inside) join({first, end, static_cast<int64_t>(f), inner}, rest);
    }
    return all;
}

double count(const Chain &chain, int64_t first, int64_t last, int64_t depth, double limit) {
    if (first > last) return 1;
    const LayerType &t = chain.type(first);
    double sum = static_cast<double>(t.policies.size()) * count(chain, first + 1, last, depth, limit);
    if (depth == 0 || t.unit_inputs.empty()) return sum;
    const int64_t most = chain.max_unit_layers == 0 ? chain.size() : chain.max_unit_layers;
    for (int64_t end = first + 1; end <= last && end - first < most && sum <= limit; ++end)
        sum += static_cast<double>(t.unit_inputs.size()) * count(chain, first, end, depth - 1, limit) *
               count(chain, end + 1, last, depth, limit);
    return sum;
}

void list(const std::vector<Node> &tree, mdlm::planner::ChainPlan &plan) {
    for (const Node &n : tree) {
        const size_t at = plan.size();
        plan.push_back({static_cast<int32_t>(n.first), static_cast<int32_t>(n.last - n.first + 1),
                        static_cast<int32_t>(n.choice), 0});
        list(n.inner, plan);
        plan[at].inside = static_cast<int32_t>(plan.size() - at - 1);
    }
}

std::vector<Node> tree(const mdlm::planner::ChainPlan &plan, size_t begin, size_t end) {
    std::vector<Node> out;
    while (begin < end) {
        const auto &item = plan[begin];
        const size_t next = begin + 1 + static_cast<size_t>(item.inside);
        out.push_back({item.first, item.first + item.count - 1, item.choice, tree(plan, begin + 1, next)});
        begin = next;
    }
    return out;
}

void rank(const std::vector<Node> &plan, std::vector<int64_t> &out) {
    for (const Node &n : plan) {
        out.insert(out.end(), {n.inner.empty() ? 0 : n.last - n.first, n.choice});
        rank(n.inner, out);
    }
}

}  // namespace

Seen run(const Chain &chain, const std::vector<Node> &plan, const std::vector<int> &order) {
    Machine machine(chain);
    for (size_t tape = 0; tape < order.size(); ++tape) machine.forward(tape, plan);
    int64_t ns = 0;
    for (int tape : order) {
        machine.backward(static_cast<size_t>(tape), plan);
        if (order.size() > 1) {
            machine.forward(static_cast<size_t>(tape), plan);  // counts time anew
            machine.backward(static_cast<size_t>(tape), plan);
        }
        ns = machine.ns();
    }
    return {machine.peak(), ns};
}

std::vector<std::vector<Node>> all_plans(const Chain &chain) {
    return plans_of(chain, 0, chain.size() - 1, chain.max_unit_depth, false);
}
double count_plans(const Chain &chain, double most) {
    return count(chain, 0, chain.size() - 1, chain.max_unit_depth, most);
}

std::vector<Node> tree_of(const mdlm::planner::ChainPlan &plan) { return tree(plan, 0, plan.size()); }
mdlm::planner::ChainPlan list_of(const std::vector<Node> &tree) {
    mdlm::planner::ChainPlan plan;
    list(tree, plan);
    return plan;
}

std::string spelled(const Chain &chain, const std::vector<Node> &plan) {
    std::string text;
    for (const Node &n : plan) {
        if (n.inner.empty()) {
            text += chain.type(n.first).policies[static_cast<size_t>(n.choice)].name;
            continue;
        }
        if (!text.empty() && text.back() != ' ') text += ' ';
        text +=
            "S" + std::to_string(n.first + 1) + "-" + std::to_string(n.last + 1) + "[" + spelled(chain, n.inner) + "] ";
    }
    if (!text.empty() && text.back() == ' ') text.pop_back();
    return text;
}

std::vector<int64_t> rank(const std::vector<Node> &plan) {
    std::vector<int64_t> out;
    rank(plan, out);
    return out;
}

}  // namespace planner_test

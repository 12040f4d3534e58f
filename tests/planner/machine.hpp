// SPDX-License-Identifier: Apache-2.0
// Runs a plan event by event, as a training step would: tapes push what they retain and pop it again, and every
// moment's bytes are looked at. Made from the rules alone; nothing of the planner is used but the types that describe a
// chain.
#pragma once
#include <vector>

#include "planner/chain.hpp"

namespace planner_test {

using mdlm::planner::Chain;

// A plan as a tree.
struct Node {
    int64_t first = 0, last = 0;
    int64_t choice = 0;
    std::vector<Node> inner;  // empty: a single layer
};

struct Seen {
    int64_t peak = 0, ns = 0;
    bool operator==(const Seen &) const = default;
};

// order: in which the tapes finish, a permutation of 0 .. in_flight - 1. Each tape that finishes is used once more, by
// a micro-batch that runs forward while the others wait and finishes at once.
Seen run(const Chain &chain, const std::vector<Node> &plan, const std::vector<int> &order);

// All plans of the space, units that cover a whole unit included.
std::vector<std::vector<Node>> all_plans(const Chain &chain);
// How many they are, or more than `most`.
double count_plans(const Chain &chain, double most);

std::vector<Node> tree_of(const mdlm::planner::ChainPlan &plan);
mdlm::planner::ChainPlan list_of(const std::vector<Node> &tree);
// "S1-3[XXA] X A": layers counted from 1, names of policies.
std::string spelled(const Chain &chain, const std::vector<Node> &plan);
// Sorts as the planner says that it breaks ties.
std::vector<int64_t> rank(const std::vector<Node> &plan);

}  // namespace planner_test

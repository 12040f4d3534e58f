// SPDX-License-Identifier: Apache-2.0
// A chain of three different programs in four items or more, 8 -> 16 -> 16 -> 16 -> 6 wide, and its step run twice: by
// a block, and op by op with each buffer in memory of its own.
#pragma once
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "base/sizes.hpp"
#include "block/block.hpp"
#include "block/reservation.hpp"
#include "support/programs.hpp"

namespace mdlm_test::chain_items {

inline constexpr int64_t rows = 10;  // 5 x 2

mdlm::Program widening();
// Scaled by what a state has seen, and by the positions, given beside x. always_kept false: against the rules.
mdlm::Program middle(mdlm::BufferId *scale = nullptr, bool always_kept = true);
mdlm::Program narrowing();  // with labels beside x

mdlm::Item item_of(mdlm::Program program);
mdlm::Chain make_items(size_t middles = 2);

// Micro-batches, a block, and the same step op by op.
struct World {
    explicit World(size_t middles = 2);
    mdlm_shape shape(int32_t in_flight) const;
    mdlm_batch batch(size_t micro) const;
    // Two rounds of forwards, an evaluation, and backwards in another order. "" or what differs. fault: changes the
    // plan before anything runs.
    std::string run(const mdlm_shape &shape, const mdlm::Policies &policies,
                    const std::function<void(mdlm::BlockPlan &)> &fault = nullptr);

    mdlm::Engine engine;
    mdlm::Chain chain;
    std::unique_ptr<mdlm::Block> block;

private:
    struct Micro;
    struct Apart;
    std::vector<std::vector<float>> states_;  // of all items, op by op
    uint64_t micros_ = 0;                     // so far
};

}  // namespace mdlm_test::chain_items

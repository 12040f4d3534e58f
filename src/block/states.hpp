// SPDX-License-Identifier: Apache-2.0
// Memory of items that lasts as long as the block: zeros when it is first reserved, then what ops leave there. A
// forward that fails may have changed it.
#pragma once
#include <vector>

#include "block/engine.hpp"
#include "plan/item.hpp"

namespace mdlm {

class States {
public:
    explicit States(const Chain &chain);
    // prepare allocates what is not there yet, commit (which cannot fail) puts it in use.
    Memory prepare(Engine &engine) const;
    void commit(Engine &engine, Memory memory);
    int64_t own_bytes() const { return own_.bytes(); }
    // By StateId, for RunState.
    void *const *of(int64_t item) const { return at_.data() + first_[static_cast<size_t>(item)]; }

private:
    std::vector<int64_t> first_;   // by item, index of its first state
    std::vector<int64_t> offset_;  // by state, all items
    std::vector<void *> at_;
    int64_t bytes_ = 0;
    Memory own_;
};

}  // namespace mdlm

// SPDX-License-Identifier: Apache-2.0
#include "block/states.hpp"

#include "base/sizes.hpp"

namespace mdlm {

States::States(const Chain &chain) {
    for (const Item &item : chain.list) {
        first_.push_back(static_cast<int64_t>(offset_.size()));
        for (const State &s : item.program->states) {
            offset_.push_back(bytes_);
            bytes_ = add(bytes_, s.bytes());
        }
    }
    at_.resize(offset_.size());
}

Memory States::prepare(Engine &engine) const {
    if (bytes_ == own_.bytes()) return {};
    Memory m = engine.device_memory.allocate(bytes_, "states");
    engine.device->zero(m.get(), static_cast<size_t>(bytes_));
    return m;
}

void States::commit(Engine &engine, Memory memory) {
    if (memory.get() == nullptr) return;
    own_ = std::move(memory);
    engine.parameter_bytes += own_.bytes();
    for (size_t i = 0; i < at_.size(); ++i) at_[i] = own_.get() + offset_[i];
}

}  // namespace mdlm

// SPDX-License-Identifier: Apache-2.0
// How many objects of a kind there are, for mdlm_count_objects.
#pragma once
#include <atomic>
#include <cstdint>

namespace mdlm {

// A member of what is counted.
template <class Kind>
class Counted {
public:
    Counted() noexcept { ++alive_; }
    ~Counted() { --alive_; }
    Counted(const Counted &) = delete;
    static int64_t alive() noexcept { return alive_; }

private:
    static inline std::atomic<int64_t> alive_{0};
};

}  // namespace mdlm

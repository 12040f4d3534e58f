// SPDX-License-Identifier: Apache-2.0
#include "fault/inject.hpp"

#include <cstdlib>

namespace mdlm_test {
namespace inject {
namespace {

std::atomic<Fault> armed = Fault::none;
std::atomic<int64_t> counted = 0, strike_at = 0;
std::atomic<bool> persists = false, only_nothrow = true;

}  // namespace

thread_local int inside_dnnl = 0;
thread_local bool spared = false;

void arm(Fault kind, int64_t n, bool persistent) {
    counted = 0;
    strike_at = n;
    persists = persistent;
    only_nothrow = true;
    armed = kind;
}
void disarm() { armed = Fault::none; }
int64_t calls() { return counted; }

bool only_nothrow_struck() { return only_nothrow; }

bool strikes(Fault kind, bool nothrow) {
    if (armed != kind || spared) return false;
    const int64_t n = ++counted;
    if (persists ? n < strike_at : n != strike_at) return false;
    if (!nothrow) only_nothrow = false;
    return true;
}

}  // namespace inject

mdlm_allocator FaultyAllocator::table() {
    return {sizeof(mdlm_allocator),
            [](void *payload, size_t bytes, size_t alignment, void *) -> void * {
                auto &self = *static_cast<FaultyAllocator *>(payload);
                ++self.calls;
                if (inject::strikes(Fault::allocator)) return nullptr;
                void *memory = std::aligned_alloc(alignment, (bytes + alignment - 1) / alignment * alignment);
                if (memory != nullptr) self.live_bytes += static_cast<int64_t>(bytes);
                return memory;
            },
            [](void *payload, void *memory, size_t bytes, size_t, void *) {
                static_cast<FaultyAllocator *>(payload)->live_bytes -= static_cast<int64_t>(bytes);
                std::free(memory);
            },
            this};
}

}  // namespace mdlm_test

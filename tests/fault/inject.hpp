// SPDX-License-Identifier: Apache-2.0
// Faults: the n-th call of a kind, made by the library, fails; once, or from there on.
#pragma once
#include <atomic>
#include <cstddef>
#include <cstdint>

#include "mdlm/mdlm.h"

namespace mdlm_test {

enum class Fault { none, heap, allocator, thread, dnnl };

namespace inject {

// The n-th call from now on (from 1) fails; with persistent every later one too. Counts the calls of the kind.
void arm(Fault kind, int64_t n, bool persistent);
void disarm();
int64_t calls();
// True when this call is to fail. Called by the stand-ins. nothrow: a caller that may go on without (std::stable_sort
// does).
bool strikes(Fault kind, bool nothrow = false);
// True when all that was struck since arm was nothrow.
bool only_nothrow_struck();

// Blocks from operator new that are alive, without those that oneDNN made for itself.
int64_t live_blocks();

// Set on a thread whose calls neither count nor fail: that of another rank.
extern thread_local bool spared;
// True on a thread that is inside a call to oneDNN: what happens there is not the library's doing.
extern thread_local int inside_dnnl;
// Calls of dnnl_* functions since the program began, and whether the stand-ins for them are linked.
int64_t dnnl_calls();
bool have_dnnl();

}  // namespace inject

// An allocator of the caller that can fail, and counts.
struct FaultyAllocator {
    int64_t live_bytes = 0, calls = 0;
    mdlm_allocator table();
};

}  // namespace mdlm_test

// SPDX-License-Identifier: Apache-2.0
// What processes of a group send each other. All have the same library: create compares `protocol`.
#pragma once
#include <cstdint>

namespace mdlm {

constexpr int32_t protocol = 0x6d640001;  // also tells another byte order

enum class Kind : int32_t { all_reduce, all_gather, reduce_scatter };
constexpr const char *text_of(Kind k) {
    return k == Kind::all_reduce ? "all_reduce" : k == Kind::all_gather ? "all_gather" : "reduce_scatter";
}

// In front of the data of every message, so that no rank uses data of another call than its own.
struct alignas(64) Header {
    int64_t call;  // how many collectives the group has begun
    int64_t round;
    int64_t count;
    Kind kind;
    int32_t dtype, op;
};
static_assert(sizeof(Header) == 64);

// Sent at most twice to each other rank, when there is something to say that is no collective.
struct Notice {
    enum Kind : int32_t { aborted, left };
    Kind kind;
    int64_t completed;  // collectives of which the sender has received and sent everything
    char reason[240];
};

// Messages between two ranks with one tag arrive in the order in which they were sent.
enum Tag : int { tag_first = 1, tag_second = 2, tag_notice = 3 };

}  // namespace mdlm

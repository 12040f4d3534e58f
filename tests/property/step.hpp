// SPDX-License-Identifier: Apache-2.0
// Runs a draw's step through the C ABI and collects everything whose bits are promised.
#pragma once
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "block/block.hpp"
#include "comm/comm.hpp"
#include "draw.hpp"

namespace property {

// What a seeded mutant changes; the runs that must hold have none.
class Intruder {
public:
    virtual ~Intruder() = default;
    virtual std::unique_ptr<mdlm::Device> device(std::unique_ptr<mdlm::Device> d) { return d; }
    virtual void plan(mdlm::BlockPlan &) {}  // after reserve, before anything runs
    virtual void backward(bool /*inside*/) {}
};

enum class Which { drawn, keep_everything };
// How a step is run.
struct How {
    Which which = Which::drawn;
    int32_t threads = 1;
    Intruder *intruder = nullptr;
    mdlm_device_kind device = MDLM_DEVICE_CPU;
    mdlm_comm *comm = nullptr;  // of this rank, where there are several
    bool whole = false;         // collect the values of all ranks, too
};

struct Outcome {
    std::string failure;  // "" when every call did what it should
    // y, dx, evaluations and parameter gradients, by name.
    std::vector<std::pair<std::string, std::vector<unsigned char>>> bits;
    // With How::whole, the same without evaluations, as a group of one would have it.
    std::vector<std::pair<std::string, std::vector<double>>> values;
    std::vector<std::string> replicated;  // names of bits that must be the same on all ranks
    uint64_t replayed_ops = 0, replayed_matmul_flops = 0, host_bytes = 0;
    bool units_of_several = false;  // and they replay
    bool shards = false;            // each rank keeps its share of some unit's input
};

// A failure of one rank of a group breaks the group.
Outcome run(const Draw &draw, const How &how);
inline Outcome run(const Draw &draw, Which which, int32_t threads, Intruder *intruder = nullptr) {
    return run(draw, How{which, threads, intruder});
}

// "" when both have the same bits, else the first thing that differs.
std::string difference(const Outcome &a, const Outcome &b);

}  // namespace property

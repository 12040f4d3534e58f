// Runs a draw's step through the C ABI and collects everything whose bits are promised.
#pragma once
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "block/block.hpp"
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

struct Outcome {
    std::string failure;  // "" when every call did what it should
    std::vector<std::pair<std::string, std::vector<unsigned char>>> bits;  // y, dx, evaluations and parameter gradients, by name
    uint64_t replayed_ops = 0, replayed_matmul_flops = 0, host_bytes = 0;
    bool units_of_several = false;  // and they replay
};

enum class Which { drawn, keep_everything };
Outcome run(const Draw &draw, Which which, int32_t threads, Intruder *intruder = nullptr);

// "" when both have the same bits, else the first thing that differs.
std::string difference(const Outcome &a, const Outcome &b);

}  // namespace property

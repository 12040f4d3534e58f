// SPDX-License-Identifier: Apache-2.0
// Cases with one special value in one input of a kernel: as many runs as it has inputs, times those values.
#pragma once
#include <limits>

#include "support/attention_cases.hpp"
#include "unit/cpu_case.hpp"

namespace mdlm_test {

using namespace mdlm;

inline constexpr DType types[] = {DType::f32, DType::bf16};
inline constexpr double not_a_number = std::numeric_limits<double>::quiet_NaN(),
                        infinity = std::numeric_limits<double>::infinity();
inline std::vector<double> specials() {
    if (slow()) return {not_a_number, infinity, -3e38, -1e-42};
    return {not_a_number, infinity, -infinity, 3e38, -3e38, 1.2e-38, -1e-42};
}

// Makes inputs; the one whose turn it is has a special value in it.
class Inputs {
public:
    Inputs(Run &run, double value, int turn) : run_(run), value_(value), turn_(turn) {}
    void *operator()(DType type, int64_t count, uint64_t seed, double scale = 1.0, double middle = 0.0) {
        void *p = run_.in(type, count, seed, scale, middle);
        if (made_++ == turn_) store(type, p, count / 2, value_);
        return p;
    }
    int made() const { return made_; }

private:
    Run &run_;
    double value_;
    int turn_, made_ = 0;
};
using Kernels = std::function<void(Run &, Inputs &)>;

// Inputs are about 1 but for the special one, so that `floor` is what sums of the others may be off by.
inline void check_special(Devices &devices, const std::string &what, const Kernels &body, double floor = 1e-4,
                          double largest = 3e38) {
    Run counted(*devices.reference, *devices.reference, 0);
    Inputs none(counted, 0.0, -1);
    body(counted, none);
    for (int turn = 0; turn < none.made(); ++turn)
        for (const double special : specials()) {
            const double value = std::isfinite(special) ? std::clamp(special, -largest, largest) : special;
            check_case(
                devices, what + ", input " + std::to_string(turn) + " has " + std::to_string(value),
                [&](Run &r) {
                    Inputs inputs(r, value, turn);
                    body(r, inputs);
                },
                [floor](Block &seen, Block &expected) { check_rows(seen, expected, 2e-5, floor); });
        }
}

inline std::string name(const char *kernel, DType type, int kind = 0) {
    return std::string(kernel).append(" ").append(name_of(type)).append(" kind ").append(std::to_string(kind));
}
inline KernelSize size_of_case(DType type, int64_t rows, int64_t n, int64_t k = 0, bool bias = false,
                               bool accumulate = false) {
    KernelSize s;
    s.dtype = type, s.rows = rows, s.n = n, s.k = k, s.bias = bias, s.accumulate = accumulate;
    return s;
}

}  // namespace mdlm_test

// SPDX-License-Identifier: Apache-2.0
#include "support/gradient.hpp"

#include <doctest/doctest.h>

#include <cmath>

namespace mdlm_test {
namespace {

// Fourth order, so that a step large enough to leave rounding behind is still exact enough.
double difference_quotient(Tensor &value, int64_t i, const std::function<double()> &loss) {
    const double x = value[i], step = 1.0 / 1024;
    const auto at = [&](double steps) {
        value.set(i, x + steps * step);
        return loss();
    };
    const double quotient = (8.0 * (at(1) - at(-1)) - (at(2) - at(-2))) / (12.0 * step);
    value.set(i, x);
    return quotient;
}

void check_one(const std::string &what, const Wrt &w, const std::function<double()> &loss) {
    CAPTURE(what);
    CAPTURE(std::string(w.name));
    REQUIRE(w.value->count() == w.grad->count());
    double squares = 0.0;
    int64_t there = 0, wrong = 0;
    for (int64_t i = 0; i < w.grad->count(); ++i) {
        squares += (*w.grad)[i] * (*w.grad)[i];
        there += std::fabs((*w.grad)[i]) > 1e-3;
    }
    CHECK_MESSAGE(there * 10 >= w.grad->count(), "mistrusted: only ", there, " of ", w.grad->count(),
                  " elements are not zero");
    const double floor = 1e-3 * std::sqrt(squares / double(w.grad->count()));
    for (int64_t i = 0; i < w.grad->count(); ++i) {
        const double got = (*w.grad)[i], want = difference_quotient(*w.value, i, loss);
        if (std::fabs(got - want) <= 1e-6 * std::max(std::fabs(want), floor)) continue;
        if (++wrong <= 3) FAIL_CHECK("element " << i << ": expected " << want << ", got " << got);
    }
    CHECK(wrong == 0);
}

}  // namespace

double product(const Tensor &output, const Tensor &cotangent) {
    REQUIRE(output.count() == cotangent.count());
    double total = 0.0;
    for (int64_t i = 0; i < output.count(); ++i) {
        if (cotangent[i] != 0.0) total += output[i] * cotangent[i];
    }
    return total;
}

void check_backward(const std::string &what, const std::vector<Wrt> &wrt, const std::function<double()> &loss,
                    const std::function<void(bool)> &backward) {
    loss();
    for (const Wrt &w : wrt) w.grad->spoil();
    backward(false);
    std::vector<Tensor> assigned;
    for (const Wrt &w : wrt) assigned.push_back(*w.grad);

    for (const Wrt &w : wrt) w.grad->fill(0.5);
    backward(true);
    for (size_t n = 0; n < wrt.size(); ++n) {
        CAPTURE(what);
        CAPTURE(std::string(wrt[n].name));
        int64_t wrong = 0;
        for (int64_t i = 0; i < assigned[n].count(); ++i) {
            const double want = assigned[n][i] + (wrt[n].parameter ? 0.5 : 0.0);
            wrong += !(std::fabs((*wrt[n].grad)[i] - want) <= 1e-14 * (1.0 + std::fabs(want)));
        }
        CHECK_MESSAGE(wrong == 0, wrong, " elements differ when gradients accumulate");
        *wrt[n].grad = assigned[n];
    }
    for (const Wrt &w : wrt) check_one(what, w, loss);
}

}  // namespace mdlm_test

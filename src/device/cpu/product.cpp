// SPDX-License-Identifier: Apache-2.0
#include "device/cpu/targets.hpp"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "device/cpu/product.cpp"
#include "hwy/foreach_target.h"

#include "device/cpu/micro-inl.hpp"
#include "device/cpu/product.hpp"

HWY_BEFORE_NAMESPACE();
namespace mdlm::cpu::HWY_NAMESPACE {

static_assert(product_m == micro_m && product_n % micro_n == 0);

template <Start start>
void tiles(int64_t m, int64_t n, int64_t k, const float *a, int64_t a_row, int64_t a_k, const float *b, int64_t b_row,
           float *c, int64_t c_row) {
    for (int64_t j = 0; j < n; j += micro_n)
        for (int64_t i = 0; i < m; i += micro_m)
            micro<start>(k, a + i * a_row, a_row, a_k, b + j, b_row, nullptr, c + i * c_row + j, c_row);
}

void product(int64_t m, int64_t n, int64_t k, const float *a, int64_t a_row, int64_t a_k, const float *b, int64_t b_row,
             float *c, int64_t c_row, bool add) {
    // The two cases as constants make better loops.
    if (a_k == 1 && add) return tiles<Start::c>(m, n, k, a, a_row, 1, b, b_row, c, c_row);
    if (a_k == 1) return tiles<Start::zero>(m, n, k, a, a_row, 1, b, b_row, c, c_row);
    if (add) return tiles<Start::c>(m, n, k, a, a_row, a_k, b, b_row, c, c_row);
    tiles<Start::zero>(m, n, k, a, a_row, a_k, b, b_row, c, c_row);
}

const char *kernel_target() { return hwy::TargetName(HWY_TARGET); }

}  // namespace mdlm::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace mdlm::cpu {
namespace {
HWY_EXPORT(product);
HWY_EXPORT(kernel_target);
}  // namespace

void product(int64_t m, int64_t n, int64_t k, const float *a, int64_t a_row, int64_t a_k, const float *b, int64_t b_row,
             float *c, int64_t c_row, bool add) {
    HWY_DYNAMIC_DISPATCH(product)(m, n, k, a, a_row, a_k, b, b_row, c, c_row, add);
}

const char *kernel_target() { return HWY_DYNAMIC_DISPATCH(kernel_target)(); }

}  // namespace mdlm::cpu
#endif

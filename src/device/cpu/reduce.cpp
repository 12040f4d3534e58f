// SPDX-License-Identifier: Apache-2.0
// Sums over rows.
#include "device/cpu/targets.hpp"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "device/cpu/reduce.cpp"
#include "hwy/foreach_target.h"

#include "device/cpu/kernels.hpp"
#include "device/cpu/row_sums.hpp"
#include "device/cpu/spans.hpp"
#include "device/cpu/vector-inl.hpp"

HWY_BEFORE_NAMESPACE();
namespace mdlm::cpu::HWY_NAMESPACE {

// totals[c] (+)= sums[c]. Plain loops, here and below: the compiler makes vectors of them for each instruction set.
void add_sums(const float *HWY_RESTRICT sums, int64_t width, double *HWY_RESTRICT totals, bool assign) {
    if (assign)
        for (int64_t c = 0; c < width; ++c) totals[c] = static_cast<double>(sums[c]);
    else
        for (int64_t c = 0; c < width; ++c) totals[c] += static_cast<double>(sums[c]);
}

// to[c] (+)= sum over chunks of from[chunk * stride + c], width <= span
void add_totals(const double *from, int64_t chunks, int64_t stride, int64_t width, float *to, bool accumulate) {
    double total[max_span] = {};
    if (accumulate)
        for (int64_t c = 0; c < width; ++c) total[c] = static_cast<double>(to[c]);
    for (int64_t i = 0; i < chunks; ++i)
        for (int64_t c = 0; c < width; ++c) total[c] += from[i * stride + c];
    for (int64_t c = 0; c < width; ++c) to[c] = static_cast<float>(total[c]);
}

template <class T>
void add_to(const T *from, int64_t rows, int64_t width, float *sums) {
    for (int64_t r = 0; r < rows; ++r)
        vectors(width, [&](int64_t c, int64_t n)
                           HWY_ATTR { store(hn::Add(load(sums + c, n), load(from + r * width + c, n)), sums + c, n); });
}
void add_rows(DType type, const void *from, int64_t first_row, int64_t rows, int64_t width, float *sums) {
    if (type == DType::f32) add_to(static_cast<const float *>(from) + first_row * width, rows, width, sums);
    else add_to(static_cast<const bf16 *>(from) + first_row * width, rows, width, sums);
}

}  // namespace mdlm::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace mdlm::cpu {
namespace {
HWY_EXPORT(add_sums);
HWY_EXPORT(add_totals);
HWY_EXPORT(add_rows);
}  // namespace

void RowSums::add_block(const float *sums, int64_t width, double *totals, bool assign) {
    HWY_DYNAMIC_DISPATCH(add_sums)(sums, width, totals, assign);
}
void RowSums::add_to(Pool &pool, int64_t first, int64_t count, float *to, bool accumulate) const {
    pool.parallel_for(ceil_div(count, max_span), [&](int64_t i, int32_t) {
        const int64_t c = i * max_span;
        HWY_DYNAMIC_DISPATCH(add_totals)
        (totals_ + first + c, chunks_.count, width_, std::min(max_span, count - c), to + c, accumulate);
    });
}

void bias_grad(Pool &pool, const BiasGrad &a) {
    const RowSums sums(a.rows, a.width, a.workspace);
    sums.run(pool, [&](int64_t begin, int64_t end, float *block) {
        HWY_DYNAMIC_DISPATCH(add_rows)(a.dtype, a.dy, begin, end - begin, a.width, block);
    });
    sums.add_to(pool, 0, a.width, static_cast<float *>(a.db), a.accumulate);
}

int64_t bias_grad_workspace(const KernelSize &s, int32_t threads) { return RowSums::bytes(s.rows, s.n, threads); }

}  // namespace mdlm::cpu
#endif

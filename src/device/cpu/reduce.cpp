// Sums over rows.
#include "device/cpu/targets.hpp"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "device/cpu/reduce.cpp"
#include "hwy/foreach_target.h"

#include <cstring>

#include "device/cpu/kernels.hpp"
#include "device/cpu/tasks.hpp"
#include "device/cpu/vector-inl.hpp"

HWY_BEFORE_NAMESPACE();
namespace mdlm::cpu::HWY_NAMESPACE {

// to[c] (+)= sum over rows of from[row * stride + c]
void add_rows(const float *from, int64_t rows, int64_t stride, int64_t width, float *to, bool accumulate) {
    vectors(width, [&](int64_t c, int64_t n) HWY_ATTR {
        V total = hn::Zero(Floats());
        for (int64_t r = 0; r < rows; ++r) total = hn::Add(total, load(from + r * stride + c, n));
        store(accumulate ? hn::Add(load(to + c, n), total) : total, to + c, n);
    });
}

template <class T>
void add_to(const T *from, int64_t rows, int64_t width, float *sums) {
    for (int64_t r = 0; r < rows; ++r)
        vectors(width, [&](int64_t c, int64_t n) HWY_ATTR { store(hn::Add(load(sums + c, n), load(from + r * width + c, n)), sums + c, n); });
}
void add_to_sums(DType type, const void *from, int64_t first_row, int64_t rows, int64_t width, float *sums) {
    if (type == DType::f32) add_to(static_cast<const float *>(from) + first_row * width, rows, width, sums);
    else add_to(static_cast<const bf16 *>(from) + first_row * width, rows, width, sums);
}

}  // namespace mdlm::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace mdlm::cpu {
namespace {
HWY_EXPORT(add_rows);
HWY_EXPORT(add_to_sums);
}  // namespace

void add_chunks(Pool &pool, const float *partial, int64_t chunks, int64_t stride, int64_t width, float *to, bool accumulate) {
    parts(pool, width, chunks, [&](int64_t begin, int64_t end, int32_t) {
        HWY_DYNAMIC_DISPATCH(add_rows)(partial + begin, chunks, stride, end - begin, to + begin, accumulate);
    });
}

void bias_grad(Pool &pool, const BiasGrad &a) {
    const Chunks chunks(a.rows);
    float *partial = static_cast<float *>(a.workspace);
    pool.each(chunks.count, [&](int64_t i, int32_t) {
        float *mine = partial + i * a.width;
        std::memset(mine, 0, static_cast<size_t>(a.width) * sizeof(float));
        HWY_DYNAMIC_DISPATCH(add_to_sums)(a.dtype, a.dy, chunks.begin(i), chunks.end(i) - chunks.begin(i), a.width, mine);
    });
    add_chunks(pool, partial, chunks.count, a.width, a.width, static_cast<float *>(a.db), a.accumulate);
}

int64_t bias_grad_workspace(const KernelSize &s) { return mul(mul(Chunks::most(s.rows), s.n), sizeof(float)); }

}  // namespace mdlm::cpu
#endif

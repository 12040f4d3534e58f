// Sums over rows.
#include <cstring>

#include "device/cpu/kernels.hpp"
#include "device/cpu/spans.hpp"
#include "device/cpu/tasks.hpp"

namespace mdlm::cpu {

void add_chunks(Pool &pool, const float *partial, int64_t chunks, int64_t stride, int64_t width, float *to, bool accumulate) {
    parts(pool, width, chunks, [&](int64_t begin, int64_t end, int32_t) {
        for (int64_t c0 = begin; c0 < end; c0 += span) {
            const int64_t n = std::min(span, end - c0);
            float total[span] = {};
            for (int64_t k = 0; k < chunks; ++k)
                for (int64_t c = 0; c < n; ++c) total[c] += partial[k * stride + c0 + c];
            for (int64_t c = 0; c < n; ++c) to[c0 + c] = accumulate ? to[c0 + c] + total[c] : total[c];
        }
    });
}

void bias_grad(Pool &pool, const BiasGrad &a) {
    const Chunks chunks(a.rows);
    float *partial = static_cast<float *>(a.workspace);
    pool.each(chunks.count, [&](int64_t i, int32_t) {
        float *mine = partial + i * a.width;
        std::memset(mine, 0, static_cast<size_t>(a.width) * sizeof(float));
        float dy[span];
        for (int64_t row = chunks.begin(i); row < chunks.end(i); ++row)
            for (int64_t c0 = 0; c0 < a.width; c0 += span) {
                const int64_t n = std::min(span, a.width - c0);
                read(a.dtype, a.dy, row * a.width + c0, n, dy);
                for (int64_t c = 0; c < n; ++c) mine[c0 + c] += dy[c];
            }
    });
    add_chunks(pool, partial, chunks.count, a.width, a.width, static_cast<float *>(a.db), a.accumulate);
}

int64_t bias_grad_workspace(const KernelSize &s) { return mul(mul(Chunks::most(s.rows), s.n), sizeof(float)); }

}  // namespace mdlm::cpu

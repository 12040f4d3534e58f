// LayerNorm and RMSNorm, row by row. xhat = (x - mean) rstd, y = xhat w + bias;
// dx = add + rstd (g - mean(g) - xhat mean(g xhat)) with g = dy w, without mean(g) for RMSNorm; dw = sum dy xhat, dbias = sum dy.
#include <cstring>

#include "device/cpu/kernels.hpp"
#include "device/cpu/spans.hpp"
#include "device/cpu/tasks.hpp"

namespace mdlm::cpu {
namespace {

void read_weight(DType type, const void *weight, int64_t at, int64_t n, bool zero_centered, float *out) {
    read(type, weight, at, n, out);
    if (zero_centered)
        for (int64_t c = 0; c < n; ++c) out[c] += 1.0f;
}

// Mean and reciprocal standard deviation of one row.
void statistics(const NormForward &a, int64_t row, float *mean, float *rstd) {
    float x[span];
    double total = 0.0, squares = 0.0;
    if (!a.rms) {
        for (int64_t c0 = 0; c0 < a.width; c0 += span) {
            const int64_t n = std::min(span, a.width - c0);
            read(a.dtype, a.x, row * a.width + c0, n, x);
            total += sum(x, n);
        }
    }
    const float m = a.rms ? 0.0f : static_cast<float>(total / static_cast<double>(a.width));
    for (int64_t c0 = 0; c0 < a.width; c0 += span) {
        const int64_t n = std::min(span, a.width - c0);
        read(a.dtype, a.x, row * a.width + c0, n, x);
        for (int64_t c = 0; c < n; ++c) x[c] -= m;
        squares += dot(x, x, n);
    }
    *mean = m;
    *rstd = static_cast<float>(1.0 / std::sqrt(squares / static_cast<double>(a.width) + a.epsilon));
}

// The sums over rows [begin, end): dw = partial[0 .. width), dbias = partial[width .. 2 width). Before dx is written, which may lie over dy.
void add_row(const NormBackward &a, int64_t row, float mean, float rstd, float *dweight, float *dbias) {
    float dy[span], x[span];
    for (int64_t c0 = 0; c0 < a.width; c0 += span) {
        const int64_t n = std::min(span, a.width - c0);
        read(a.dtype, a.dy, row * a.width + c0, n, dy);
        if (dweight != nullptr) {
            read(a.dtype, a.x, row * a.width + c0, n, x);
            for (int64_t c = 0; c < n; ++c) dweight[c0 + c] += dy[c] * ((x[c] - mean) * rstd);
        }
        if (dbias != nullptr)
            for (int64_t c = 0; c < n; ++c) dbias[c0 + c] += dy[c];
    }
}

void input_gradient(const NormBackward &a, int64_t row, float mean, float rstd) {
    float g[span], x[span], w[span];
    const auto load = [&](int64_t c0, int64_t n) {
        read(a.dtype, a.dy, row * a.width + c0, n, g);
        read(a.dtype, a.x, row * a.width + c0, n, x);
        read_weight(a.dtype, a.weight, c0, n, a.zero_centered, w);
        for (int64_t c = 0; c < n; ++c) {
            g[c] *= w[c];
            x[c] = (x[c] - mean) * rstd;
        }
    };
    double along_x = 0.0, along_1 = 0.0;
    for (int64_t c0 = 0; c0 < a.width; c0 += span) {
        const int64_t n = std::min(span, a.width - c0);
        load(c0, n);
        along_x += dot(g, x, n);
        if (!a.rms) along_1 += sum(g, n);
    }
    const auto mean_gx = static_cast<float>(along_x / static_cast<double>(a.width));
    const auto mean_g = static_cast<float>(along_1 / static_cast<double>(a.width));
    for (int64_t c0 = 0; c0 < a.width; c0 += span) {
        const int64_t n = std::min(span, a.width - c0);
        load(c0, n);
        for (int64_t c = 0; c < n; ++c) g[c] = rstd * (g[c] - mean_g - x[c] * mean_gx);
        if (a.add != nullptr) {
            read(a.dtype, a.add, row * a.width + c0, n, x);
            for (int64_t c = 0; c < n; ++c) g[c] += x[c];
        }
        write(a.dtype, a.dx, row * a.width + c0, n, g);
    }
}

}  // namespace

void norm_forward(Pool &pool, const NormForward &a) {
    parts(pool, a.rows, a.width, [&](int64_t begin, int64_t end, int32_t) {
        float x[span], w[span], b[span];
        for (int64_t row = begin; row < end; ++row) {
            float mean = 0.0f, rstd = 0.0f;
            statistics(a, row, &mean, &rstd);
            for (int64_t c0 = 0; c0 < a.width; c0 += span) {
                const int64_t n = std::min(span, a.width - c0);
                read(a.dtype, a.x, row * a.width + c0, n, x);
                read_weight(a.dtype, a.weight, c0, n, a.zero_centered, w);
                for (int64_t c = 0; c < n; ++c) x[c] = (x[c] - mean) * rstd * w[c];
                if (a.bias != nullptr) {
                    read(a.dtype, a.bias, c0, n, b);
                    for (int64_t c = 0; c < n; ++c) x[c] += b[c];
                }
                write(a.dtype, a.y, row * a.width + c0, n, x);
            }
            static_cast<float *>(a.rstd)[row] = rstd;
            if (a.mean != nullptr) static_cast<float *>(a.mean)[row] = mean;
        }
    });
}

void norm_backward(Pool &pool, const NormBackward &a) {
    const Chunks chunks(a.rows);
    float *partial = static_cast<float *>(a.workspace);
    const int64_t stride = 2 * a.width;
    const bool weights = a.dweight != nullptr || a.dbias != nullptr;
    pool.each(chunks.count, [&](int64_t i, int32_t) {
        float *dweight = a.dweight != nullptr ? partial + i * stride : nullptr;
        float *dbias = a.dbias != nullptr ? partial + i * stride + a.width : nullptr;
        if (dweight != nullptr) std::memset(dweight, 0, static_cast<size_t>(a.width) * sizeof(float));
        if (dbias != nullptr) std::memset(dbias, 0, static_cast<size_t>(a.width) * sizeof(float));
        for (int64_t row = chunks.begin(i); row < chunks.end(i); ++row) {
            const float mean = a.mean != nullptr ? static_cast<const float *>(a.mean)[row] : 0.0f;
            const float rstd = static_cast<const float *>(a.rstd)[row];
            if (weights) add_row(a, row, mean, rstd, dweight, dbias);
            if (a.dx != nullptr) input_gradient(a, row, mean, rstd);
        }
    });
    if (a.dweight != nullptr)
        add_chunks(pool, partial, chunks.count, stride, a.width, static_cast<float *>(a.dweight), a.accumulate);
    if (a.dbias != nullptr)
        add_chunks(pool, partial + a.width, chunks.count, stride, a.width, static_cast<float *>(a.dbias), a.accumulate);
}

int64_t norm_backward_workspace(const KernelSize &s) { return mul(mul(Chunks::most(s.rows), mul(2, s.n)), sizeof(float)); }

}  // namespace mdlm::cpu

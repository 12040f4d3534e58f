// SPDX-License-Identifier: Apache-2.0
#include "device/cpu/linear.hpp"

#include <algorithm>

#include "device/cpu/spans.hpp"
#include "device/cpu/tasks.hpp"
#include "device/cpu/tiling.hpp"

namespace mdlm::cpu {
namespace {

// Scratch of one thread for a library's product. A tile that wants more is made smaller.
constexpr int64_t scratch_cap = int64_t{1} << 20;
constexpr int64_t tile_rows = 256, least_rows = 32, least_columns = 128, enough_tasks = 16;  // of a library's tiles

int64_t stride(DType type) { return std::max(scratch_cap, own_workspace(type)); }

Matmul forward(DType type, int64_t m, int64_t n, int64_t k, bool bias) {
    return {type, type, m, n, k, false, true, k, k, n, bias, false};
}
Matmul dgrad(DType type, int64_t m, int64_t n, int64_t k) {
    return {type, type, m, k, n, false, false, n, k, k, false, false};
}
Matmul wgrad(DType type, int64_t m, int64_t n, int64_t k, bool accumulate) {
    return {type, wide(type), n, k, m, true, false, n, k, k, false, accumulate};
}

}  // namespace

bool Linears::TiledMatmul::by_library() const {
    return primitives[0][0] || primitives[0][1] || primitives[1][0] || primitives[1][1];
}

std::shared_ptr<void> Linears::begin_shape() {
    auto shape = std::make_shared<Shape>();
    shape_ = shape;
    return shape;
}

void Linears::prepare(const Matmul &matmul) {
    const auto shape = shape_.lock();
    if (shape == nullptr) matmul_to_run(matmul);
    else shape->matmuls.push_back(find_or_make(matmul));
}

size_t Linears::matmuls() const {
    return static_cast<size_t>(
        std::count_if(matmuls_.begin(), matmuls_.end(), [](const auto &entry) { return !entry.second.expired(); }));
}

Linears::TiledMatmulPtr Linears::find_or_make(const Matmul &matmul) {
    const auto found = matmuls_.find(matmul);
    if (found != matmuls_.end())
        if (TiledMatmulPtr held = found->second.lock()) return held;
    auto made = std::make_shared<TiledMatmul>(make(matmul));
    std::erase_if(matmuls_, [](const auto &entry) { return entry.second.expired(); });
    matmuls_[matmul] = made;
    return made;
}

Linears::TiledMatmulPtr Linears::matmul_to_run(const Matmul &matmul) {
    TiledMatmulPtr held = find_or_make(matmul);
    if (held.use_count() == 1) {  // nobody's but ours: it stays for a while
        unprepared_[next_unprepared_] = held;
        next_unprepared_ = (next_unprepared_ + 1) % unprepared_.size();
    }
    return held;
}

Linears::TiledMatmul Linears::make(const Matmul &matmul) {
    TiledMatmul tiled;
    tiled.matmul = matmul;
    const int64_t m = matmul.m, n = matmul.n;
    if (library_ && library_->runs(matmul.type)) {
        tiled.rows = std::min(m, tile_rows);
        const int64_t across =
            std::max<int64_t>(1, std::min(ceil_div(enough_tasks, ceil_div(m, tiled.rows)), n / least_columns));
        tiled.columns = std::min(n, ceil_div(ceil_div(n, across), 64) * 64);
        bool too_large = true;
        while (too_large) {
            if (make_primitives(tiled, &too_large)) return tiled;
            if (tiled.columns > least_columns) tiled.columns = ceil_div(tiled.columns / 2, 64) * 64;
            else if (tiled.rows > least_rows) tiled.rows = ceil_div(tiled.rows / 2, least_rows) * least_rows;
            else break;
        }
    }
    const Tiling tiling = tiling_for(m, n, workers_);
    tiled.rows = tiling.rows;
    tiled.columns = tiling.columns;
    return tiled;
}

// All or none. too_large: the library could, with more scratch.
bool Linears::make_primitives(TiledMatmul &tiled, bool *too_large) {
    std::unique_ptr<Primitive> made[2][2];
    *too_large = false;
    for (const bool down : {false, true})
        for (const bool across : {false, true}) {
            const int64_t count = uses(tiled, down, across);
            if (count == 0) continue;
            Matmul tile = tiled.matmul;
            tile.m = down ? tiled.matmul.m % tiled.rows : tiled.rows;
            tile.n = across ? tiled.matmul.n % tiled.columns : tiled.columns;
            int64_t scratch = 0;
            made[down][across] =
                library_->make(tile, static_cast<int32_t>(std::min<int64_t>(count, workers_)), scratch_cap, &scratch);
            if (!made[down][across]) {
                *too_large = scratch > scratch_cap;
                return false;
            }
        }
    for (const bool down : {false, true})
        for (const bool across : {false, true}) tiled.primitives[down][across] = std::move(made[down][across]);
    return true;
}

// Tiles of one kind.
int64_t Linears::uses(const TiledMatmul &tiled, bool down, bool across) const {
    const int64_t rows = down ? tiled.down_edge() : tiled.tiles_down() - tiled.down_edge();
    const int64_t columns = across ? tiled.across_edge() : tiled.tiles_across() - tiled.across_edge();
    return rows * columns;
}

void Linears::run_tiles(Pool &pool, const TiledMatmul &tiled, const Operands &all, void *workspace) {
    const Matmul &p = tiled.matmul;
    const int64_t across_count = tiled.tiles_across();
    FirstError error;
    pool.parallel_for(tiled.tiles_down() * across_count, [&](int64_t i, int32_t worker) {
        const int64_t down_at = i / across_count, across_at = i % across_count, i0 = down_at * tiled.rows,
                      j0 = across_at * tiled.columns;
        Matmul tile = p;
        tile.m = std::min(tiled.rows, p.m - i0);
        tile.n = std::min(tiled.columns, p.n - j0);
        const Operands o{at(p.type, all.a, p.a_transposed ? i0 : i0 * p.lda),
                         at(p.type, all.b, p.b_transposed ? j0 * p.ldb : j0),
                         p.bias ? at(p.type, all.bias, j0) : nullptr, at(p.out, all.c, i0 * p.ldc + j0)};
        void *scratch = static_cast<char *>(workspace) + worker * stride(p.type);
        if (!tiled.by_library()) {
            run_own(tile, o, static_cast<float *>(scratch));
            return;
        }
        const bool down = tile.m < tiled.rows, across = tile.n < tiled.columns;
        // A set of arguments by tile where there is one for each tile, else by worker.
        const int64_t inner = across_count - tiled.across_edge();
        const int64_t ordinal = across ? (down ? 0 : down_at) : (down ? across_at : down_at * inner + across_at);
        const auto set = static_cast<int32_t>(uses(tiled, down, across) <= workers_ ? ordinal : worker);
        try {
            tiled.primitives[down][across]->run(set, worker, o, scratch);
        } catch (const Error &e) {
            error.keep(i, e);
        }
    });
    error.rethrow();
}

void Linears::run(Pool &pool, const Matmul &matmul, const Operands &operands, void *workspace) {
    run_tiles(pool, *matmul_to_run(matmul), operands, workspace);
}

void linear_forward(Resources &r, const LinearForward &a) {
    r.linears.run(r, forward(a.dtype, a.m, a.n, a.k, a.bias != nullptr), {a.x, a.w, a.bias, a.y}, a.workspace);
}
void linear_dgrad(Resources &r, const LinearDgrad &a) {
    r.linears.run(r, dgrad(a.dtype, a.m, a.n, a.k), {a.dy, a.w, nullptr, a.dx}, a.workspace);
}
void linear_wgrad(Resources &r, const LinearWgrad &a) {
    r.linears.run(r, wgrad(a.dtype, a.m, a.n, a.k, a.accumulate), {a.dy, a.x, nullptr, a.dw}, a.workspace);
}

void linear_forward_prepare(Resources &r, const KernelSize &s) {
    r.linears.prepare(forward(s.dtype, s.rows, s.n, s.k, s.bias));
}
void linear_dgrad_prepare(Resources &r, const KernelSize &s) { r.linears.prepare(dgrad(s.dtype, s.rows, s.n, s.k)); }
void linear_wgrad_prepare(Resources &r, const KernelSize &s) {
    r.linears.prepare(wgrad(s.dtype, s.rows, s.n, s.k, s.accumulate));
}

int64_t linear_workspace(DType type, int32_t threads) { return mul(stride(type), threads); }
int64_t linear_forward_workspace(const KernelSize &s, int32_t threads) { return linear_workspace(s.dtype, threads); }
int64_t linear_dgrad_workspace(const KernelSize &s, int32_t threads) { return linear_workspace(s.dtype, threads); }
int64_t linear_wgrad_workspace(const KernelSize &s, int32_t threads) { return linear_workspace(s.dtype, threads); }

}  // namespace mdlm::cpu

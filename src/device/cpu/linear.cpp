// SPDX-License-Identifier: Apache-2.0
#include "device/cpu/linear.hpp"

#include <algorithm>

#include "device/cpu/cut.hpp"
#include "device/cpu/kernels.hpp"
#include "device/cpu/spans.hpp"
#include "device/cpu/tasks.hpp"

namespace mdlm::cpu {
namespace {

// Scratch of one thread for a library's product. A tile that wants more is made smaller.
constexpr int64_t scratch_cap = int64_t{1} << 20;
constexpr int64_t tile_rows = 256, least_rows = 32, least_columns = 128, enough_tasks = 16;  // of a library's tiles

int64_t stride(DType type) { return std::max(scratch_cap, own_workspace(type)); }

Matmul matmul_of(Kernel kernel, DType type, int64_t m, int64_t n, int64_t k, bool bias, bool accumulate) {
    switch (kernel) {
    case Kernel::linear_forward: return {type, type, m, n, k, false, true, k, k, n, bias, false};
    case Kernel::linear_dgrad: return {type, type, m, k, n, false, false, n, k, k, false, false};
    default: return {type, wide(type), n, k, m, true, false, n, k, k, false, accumulate};
    }
}

}  // namespace

int64_t linear_workspace(DType type, int32_t threads) { return mul(stride(type), threads); }

bool Linears::Plan::by_library() const {
    return primitives[0][0] || primitives[0][1] || primitives[1][0] || primitives[1][1];
}

std::shared_ptr<void> Linears::begin_shape() {
    auto shape = std::make_shared<Shape>();
    shape_ = shape;
    return shape;
}

void Linears::prepare(Kernel kernel, const KernelSize &s) {
    const auto hold = [&](const Key &key) {
        const auto shape = shape_.lock();
        if (shape == nullptr) return static_cast<void>(plan(key));
        shape->plans.push_back(find(key));
    };
    if (kernel == Kernel::linear_forward) hold({kernel, s.dtype, s.rows, s.n, s.k, s.bias, false});
    if (kernel == Kernel::linear_dgrad) hold({kernel, s.dtype, s.rows, s.n, s.k, false, false});
    if (kernel == Kernel::linear_wgrad) hold({kernel, s.dtype, s.rows, s.n, s.k, false, s.accumulate});
}

size_t Linears::plans() const {
    return static_cast<size_t>(
        std::count_if(plans_.begin(), plans_.end(), [](const auto &entry) { return !entry.second.expired(); }));
}

Linears::Held Linears::find(const Key &key) {
    const auto found = plans_.find(key);
    if (found != plans_.end())
        if (Held held = found->second.lock()) return held;
    auto made = std::make_shared<Plan>(make(key));
    std::erase_if(plans_, [](const auto &entry) { return entry.second.expired(); });
    plans_[key] = made;
    return made;
}

Linears::Held Linears::plan(const Key &key) {
    Held held = find(key);
    if (held.use_count() == 1) {  // nobody's but ours: it stays for a while
        loose_[next_loose_] = held;
        next_loose_ = (next_loose_ + 1) % loose_.size();
    }
    return held;
}

Linears::Plan Linears::make(const Key &key) {
    Plan plan;
    plan.matmul = matmul_of(key.kernel, key.type, key.m, key.n, key.k, key.bias, key.accumulate);
    const int64_t m = plan.matmul.m, n = plan.matmul.n;
    if (library_ && library_->runs(key.type)) {
        plan.rows = std::min(m, tile_rows);
        const int64_t across =
            std::max<int64_t>(1, std::min(ceil_div(enough_tasks, ceil_div(m, plan.rows)), n / least_columns));
        plan.columns = std::min(n, ceil_div(ceil_div(n, across), 64) * 64);
        bool too_large = true;
        while (too_large) {
            if (make_primitives(plan, &too_large)) return plan;
            if (plan.columns > least_columns) plan.columns = ceil_div(plan.columns / 2, 64) * 64;
            else if (plan.rows > least_rows) plan.rows = ceil_div(plan.rows / 2, least_rows) * least_rows;
            else break;
        }
    }
    const Cut cut = cut_for(m, n, workers_);
    plan.rows = cut.rows;
    plan.columns = cut.columns;
    return plan;
}

// All or none. too_large: the library could, with more scratch.
bool Linears::make_primitives(Plan &plan, bool *too_large) {
    std::unique_ptr<Primitive> made[2][2];
    *too_large = false;
    for (const bool down : {false, true})
        for (const bool across : {false, true}) {
            const int64_t count = uses(plan, down, across);
            if (count == 0) continue;
            Matmul tile = plan.matmul;
            tile.m = down ? plan.matmul.m % plan.rows : plan.rows;
            tile.n = across ? plan.matmul.n % plan.columns : plan.columns;
            int64_t scratch = 0;
            made[down][across] =
                library_->make(tile, static_cast<int32_t>(std::min<int64_t>(count, workers_)), scratch_cap, &scratch);
            if (!made[down][across]) {
                *too_large = scratch > scratch_cap;
                return false;
            }
        }
    for (const bool down : {false, true})
        for (const bool across : {false, true}) plan.primitives[down][across] = std::move(made[down][across]);
    return true;
}

// Tiles of one kind.
int64_t Linears::uses(const Plan &plan, bool down, bool across) const {
    const int64_t rows = down ? plan.down_edge() : plan.tiles_down() - plan.down_edge();
    const int64_t columns = across ? plan.across_edge() : plan.tiles_across() - plan.across_edge();
    return rows * columns;
}

void Linears::run(Pool &pool, const Plan &plan, const Operands &all, void *workspace) {
    const Matmul &p = plan.matmul;
    const int64_t across_count = plan.tiles_across();
    FirstError error;
    pool.parallel_for(plan.tiles_down() * across_count, [&](int64_t i, int32_t worker) {
        const int64_t down_at = i / across_count, across_at = i % across_count, i0 = down_at * plan.rows,
                      j0 = across_at * plan.columns;
        Matmul tile = p;
        tile.m = std::min(plan.rows, p.m - i0);
        tile.n = std::min(plan.columns, p.n - j0);
        const Operands o{at(p.type, all.a, p.a_transposed ? i0 : i0 * p.lda),
                         at(p.type, all.b, p.b_transposed ? j0 * p.ldb : j0),
                         p.bias ? at(p.type, all.bias, j0) : nullptr, at(p.out, all.c, i0 * p.ldc + j0)};
        void *scratch = static_cast<char *>(workspace) + worker * stride(p.type);
        if (!plan.by_library()) {
            run_own(tile, o, static_cast<float *>(scratch));
            return;
        }
        const bool down = tile.m < plan.rows, across = tile.n < plan.columns;
        // A set of arguments by tile where there is one for each tile, else by worker.
        const int64_t inner = across_count - plan.across_edge();
        const int64_t ordinal = across ? (down ? 0 : down_at) : (down ? across_at : down_at * inner + across_at);
        const auto set = static_cast<int32_t>(uses(plan, down, across) <= workers_ ? ordinal : worker);
        try {
            plan.primitives[down][across]->run(set, worker, o, scratch);
        } catch (const Error &e) {
            error.keep(i, e);
        }
    });
    error.rethrow();
}

void Linears::forward(Pool &pool, const LinearForward &a) {
    run(pool, *plan({Kernel::linear_forward, a.dtype, a.m, a.n, a.k, a.bias != nullptr, false}),
        {a.x, a.w, a.bias, a.y}, a.workspace);
}
void Linears::dgrad(Pool &pool, const LinearDgrad &a) {
    run(pool, *plan({Kernel::linear_dgrad, a.dtype, a.m, a.n, a.k, false, false}), {a.dy, a.w, nullptr, a.dx},
        a.workspace);
}
void Linears::wgrad(Pool &pool, const LinearWgrad &a) {
    run(pool, *plan({Kernel::linear_wgrad, a.dtype, a.m, a.n, a.k, false, a.accumulate}), {a.dy, a.x, nullptr, a.dw},
        a.workspace);
}

}  // namespace mdlm::cpu

// SPDX-License-Identifier: Apache-2.0
// The three products of a linear, cut into tiles, and what was made ready for them. A library's tiles depend on the
// shape only; ours on the number of threads too, since their bits do not depend on it.
#pragma once
#include <array>
#include <map>
#include <memory>
#include <vector>

#include "base/sizes.hpp"
#include "device/cpu/kernels.hpp"
#include "device/cpu/matmul.hpp"

namespace mdlm::cpu {

// Runs products, and keeps what was made ready for shapes that may come again.
class Linears {
public:
    // library null: our own products.
    Linears(int32_t workers, std::unique_ptr<Library> library) : workers_(workers), library_(std::move(library)) {}
    // What is prepared from now on stays as long as somebody holds this.
    std::shared_ptr<void> begin_shape();
    void prepare(const Matmul &matmul);
    void run(Pool &pool, const Matmul &matmul, const Operands &operands, void *workspace);
    const Library *library() const { return library_.get(); }
    size_t matmuls() const;  // that are there

private:
    // How one product is run. Tiles at the lower and right edge may be smaller: [row edge][column edge].
    struct TiledMatmul {
        Matmul matmul{};
        int64_t rows = 0, columns = 0;                // of a tile
        std::unique_ptr<Primitive> primitives[2][2];  // all null: our own loop
        int64_t tiles_down() const { return ceil_div(matmul.m, rows); }
        int64_t tiles_across() const { return ceil_div(matmul.n, columns); }
        bool down_edge() const { return matmul.m % rows != 0; }
        bool across_edge() const { return matmul.n % columns != 0; }
        bool by_library() const;
    };

    using TiledMatmulPtr = std::shared_ptr<TiledMatmul>;
    struct Shape {
        std::vector<TiledMatmulPtr> matmuls;
    };

    TiledMatmulPtr find_or_make(const Matmul &matmul);
    TiledMatmulPtr matmul_to_run(const Matmul &matmul);  // prepared or not
    TiledMatmul make(const Matmul &matmul);
    bool make_primitives(TiledMatmul &tiled, bool *too_large);
    int64_t uses(const TiledMatmul &tiled, bool down, bool across) const;
    void run_tiles(Pool &pool, const TiledMatmul &tiled, const Operands &operands, void *workspace);

    int32_t workers_;
    std::unique_ptr<Library> library_;  // before matmuls_, which point into it
    std::map<Matmul, std::weak_ptr<TiledMatmul>> matmuls_;
    std::weak_ptr<Shape> shape_;                 // begun last
    std::array<TiledMatmulPtr, 64> unprepared_;  // ran without being prepared; the oldest goes
    size_t next_unprepared_ = 0;
};

struct Resources {
    std::unique_ptr<Pool> pool;
    Linears linears;
    operator Pool &() const { return *pool; }
};

}  // namespace mdlm::cpu

// The three products of a linear, cut into tiles, and what was made ready for them. A library's tiles depend on the shape only; ours on
// the number of threads too, since their bits do not depend on it.
#pragma once
#include <compare>
#include <map>
#include <memory>

#include "base/sizes.hpp"
#include "device/cpu/matmul.hpp"
#include "device/device.hpp"

namespace mdlm::cpu {

class Linears {
public:
    // library null: our own products.
    Linears(int32_t workers, std::unique_ptr<Library> library) : workers_(workers), library_(std::move(library)) {}
    // Opens a generation. Plans that the last 16 did not use are dropped.
    void begin_shape();
    void prepare(Kernel kernel, const KernelSize &size);
    void forward(Pool &pool, const LinearForward &a);
    void dgrad(Pool &pool, const LinearDgrad &a);
    void wgrad(Pool &pool, const LinearWgrad &a);
    const Library *library() const { return library_.get(); }
    size_t plans() const { return plans_.size(); }

private:
    struct Key {
        Kernel kernel;
        DType type;
        int64_t m, n, k;
        bool bias, accumulate;
        auto operator<=>(const Key &) const = default;
    };
    // How one product is run. Tiles at the lower and right edge may be smaller: [row edge][column edge].
    struct Plan {
        Matmul matmul{};
        int64_t rows = 0, columns = 0;  // of a tile
        std::unique_ptr<Primitive> primitives[2][2];  // all null: our own loop
        int64_t generation = 0;
        int64_t tiles_down() const { return ceil_div(matmul.m, rows); }
        int64_t tiles_across() const { return ceil_div(matmul.n, columns); }
        bool down_edge() const { return matmul.m % rows != 0; }
        bool across_edge() const { return matmul.n % columns != 0; }
        bool by_library() const;
    };

    Plan &plan(const Key &key);
    Plan make(const Key &key);
    bool make_primitives(Plan &plan, bool *too_large);
    int64_t uses(const Plan &plan, bool down, bool across) const;
    void run(Pool &pool, const Plan &plan, const Operands &operands, void *workspace);

    int32_t workers_;
    std::unique_ptr<Library> library_;  // before plans_, which point into it
    std::map<Key, Plan> plans_;
    int64_t generation_ = 0;
};

}  // namespace mdlm::cpu

// SPDX-License-Identifier: Apache-2.0
// The three products of a linear, cut into tiles, and what was made ready for them. A library's tiles depend on the
// shape only; ours on the number of threads too, since their bits do not depend on it.
#pragma once
#include <array>
#include <compare>
#include <map>
#include <memory>
#include <vector>

#include "base/sizes.hpp"
#include "device/cpu/matmul.hpp"
#include "device/device.hpp"

namespace mdlm::cpu {

class Linears {
public:
    // library null: our own products.
    Linears(int32_t workers, std::unique_ptr<Library> library) : workers_(workers), library_(std::move(library)) {}
    // What is prepared from now on stays as long as somebody holds this.
    std::shared_ptr<void> begin_shape();
    void prepare(Kernel kernel, const KernelSize &size);
    void forward(Pool &pool, const LinearForward &a);
    void dgrad(Pool &pool, const LinearDgrad &a);
    void wgrad(Pool &pool, const LinearWgrad &a);
    const Library *library() const { return library_.get(); }
    size_t plans() const;  // that are there

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
        int64_t rows = 0, columns = 0;                // of a tile
        std::unique_ptr<Primitive> primitives[2][2];  // all null: our own loop
        int64_t tiles_down() const { return ceil_div(matmul.m, rows); }
        int64_t tiles_across() const { return ceil_div(matmul.n, columns); }
        bool down_edge() const { return matmul.m % rows != 0; }
        bool across_edge() const { return matmul.n % columns != 0; }
        bool by_library() const;
    };

    using Held = std::shared_ptr<Plan>;
    struct Shape {
        std::vector<Held> plans;
    };

    Held find(const Key &key);  // or makes it
    Held plan(const Key &key);  // to run, prepared or not
    Plan make(const Key &key);
    bool make_primitives(Plan &plan, bool *too_large);
    int64_t uses(const Plan &plan, bool down, bool across) const;
    void run(Pool &pool, const Plan &plan, const Operands &operands, void *workspace);

    int32_t workers_;
    std::unique_ptr<Library> library_;  // before plans_, which point into it
    std::map<Key, std::weak_ptr<Plan>> plans_;
    std::weak_ptr<Shape> shape_;  // begun last
    std::array<Held, 64> loose_;  // ran without being prepared; the oldest goes
    size_t next_loose_ = 0;
};

}  // namespace mdlm::cpu

// SPDX-License-Identifier: Apache-2.0
// A matrix product, and who can run one: a library (oneDNN, when built with it and when it has a good implementation),
// or our own loop.
#pragma once
#include <compare>
#include <cstdint>
#include <memory>

#include "base/dtype.hpp"

namespace mdlm::cpu {

// c[m, n] = a[m, k] b[k, n] (+ bias[n]), or c += a b. A transposed matrix is stored with its rows and columns
// exchanged; lda, ldb, ldc are distances between stored rows, in elements.
struct Matmul {
    DType type;  // of a, b, bias
    DType out;   // of c: type or f32
    int64_t m, n, k;
    bool a_transposed, b_transposed;
    int64_t lda, ldb, ldc;
    bool bias, accumulate;
    auto operator<=>(const Matmul &) const = default;
};
struct Operands {
    const void *a, *b, *bias;
    void *c;
};

// One product made ready to run. It has `sets` of arguments; two runs at the same time must use two.
class Primitive {
public:
    virtual ~Primitive() = default;
    // Single-threaded, on the calling thread. Allocates nothing of ours. Throws Error(MDLM_ERROR_DEVICE).
    virtual void run(int32_t set, int32_t worker, const Operands &operands, void *scratch) = 0;
};

class Library {
public:
    virtual ~Library() = default;
    virtual const char *name() const = 0;     // with its version
    virtual bool runs(DType type) const = 0;  // false: its products of this dtype are refused or slow on this CPU
    // Null when the library has nothing good for this product (then *scratch is 0), or when it wants more scratch than
    // scratch_cap.
    virtual std::unique_ptr<Primitive> make(const Matmul &matmul, int32_t sets, int64_t scratch_cap,
                                            int64_t *scratch) = 0;
};
// Null when built without. Throws Error(MDLM_ERROR_DEVICE).
std::unique_ptr<Library> make_library(int32_t workers);

// Our own, on any product: it is cut into tiles of at most own_rows by own_columns. `workspace` holds
// own_workspace(type) bytes. An element's bits do not depend on the part of a product that it is computed in.
inline constexpr int64_t own_rows = 768, own_columns = 512;
void run_own(const Matmul &matmul, const Operands &operands, float *workspace);
int64_t own_workspace(DType type);

}  // namespace mdlm::cpu

#include "device/cpu/product.hpp"

#include <cstring>

namespace mdlm::cpu {
namespace {

// Vectors of the compiler's: what the baseline of every x86-64 and arm64 has, and never an address-dependent peel.
using Four = float __attribute__((vector_size(16)));

Four get(const float *from) {
    Four v;
    std::memcpy(&v, from, sizeof v);
    return v;
}
void add_to(float *to, Four v) {
    v += get(to);
    std::memcpy(to, &v, sizeof v);
}

// 4 rows by 8 columns: 8 accumulators, 2 vectors of b and 1 of a fit the 16 registers.
void block(int64_t k, const float *a, int64_t a_row, int64_t a_k, const float *b, int64_t b_row, float *c, int64_t c_row) {
    Four l0{}, h0{}, l1{}, h1{}, l2{}, h2{}, l3{}, h3{};
    const float *a0 = a, *a1 = a + a_row, *a2 = a1 + a_row, *a3 = a2 + a_row;
    for (int64_t p = 0; p < k; ++p) {
        const Four l = get(b + p * b_row), h = get(b + p * b_row + 4);
        const float x0 = a0[p * a_k], x1 = a1[p * a_k], x2 = a2[p * a_k], x3 = a3[p * a_k];
        l0 += x0 * l;
        h0 += x0 * h;
        l1 += x1 * l;
        h1 += x1 * h;
        l2 += x2 * l;
        h2 += x2 * h;
        l3 += x3 * l;
        h3 += x3 * h;
    }
    add_to(c, l0);
    add_to(c + 4, h0);
    add_to(c + c_row, l1);
    add_to(c + c_row + 4, h1);
    add_to(c + 2 * c_row, l2);
    add_to(c + 2 * c_row + 4, h2);
    add_to(c + 3 * c_row, l3);
    add_to(c + 3 * c_row + 4, h3);
}

}  // namespace

void product(int64_t m, int64_t n, int64_t k, const float *a, int64_t a_row, int64_t a_k, const float *b, int64_t b_row, float *c,
             int64_t c_row) {
    for (int64_t j = 0; j < n; j += product_n)
        for (int64_t i = 0; i < m; i += product_m) block(k, a + i * a_row, a_row, a_k, b + j, b_row, c + i * c_row + j, c_row);
}

}  // namespace mdlm::cpu

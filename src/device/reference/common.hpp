// SPDX-License-Identifier: Apache-2.0
// What the reference kernels share: every element is read as double, computed in double and rounded once when it is
// written.
#pragma once
#include <type_traits>

#include "base/status.hpp"
#include "device/kernels.hpp"

namespace mdlm::reference {

template <class T>
using Wide = std::conditional_t<std::is_same_v<T, double>, double, float>;

template <class T>
double get(const void *from, int64_t index) {
    return static_cast<double>(static_cast<const T *>(from)[index]);
}
template <class T>
void put(void *to, int64_t index, double value) {
    static_cast<T *>(to)[index] = static_cast<T>(value);
}
// A parameter gradient: added to what is there, or assigned.
template <class W>
void put_gradient(void *to, int64_t index, double value, bool accumulate) {
    put<W>(to, index, accumulate ? get<W>(to, index) + value : value);
}

// Calls body<T>() with the storage type of dtype.
template <class Body>
void with_type(DType dtype, Body &&body) {
    switch (dtype) {
    case DType::f32: return body.template operator()<float>();
    case DType::bf16: return body.template operator()<bf16>();
    case DType::f64: return body.template operator()<double>();
    case DType::f16:
    case DType::i32: break;
    }
    fail(MDLM_ERROR_UNSUPPORTED, "device reference: dtype: expected f32, bf16 or f64, got %s", name_of(dtype));
}

// Where channel 0 of head i of group g stands in a row.
inline int64_t place(const Heads &h, int64_t row, int64_t g, int64_t i) {
    return row * h.row_stride + g * h.group_stride + i * h.head_stride;
}

// The sum of product(c) over c in [0, count).
template <class Product>
double sum(int64_t count, Product &&product) {
    double total = 0.0;
    for (int64_t c = 0; c < count; ++c) total += product(c);
    return total;
}

}  // namespace mdlm::reference
